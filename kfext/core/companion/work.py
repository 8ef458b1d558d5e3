"""How much CPU a job still takes to its end, by what its steps have taken so far."""

import math

from kfext.core.progress.course import Progress

_LEAST_USED = 2.0
"""Core-seconds after which the CPU of a step is known."""


class Work:
    """Follows one job from the first step that it shows; again if its steps go back."""

    def __init__(self) -> None:
        self._from: tuple[int, float] | None = None
        self._each = math.inf

    def take(self, progress: Progress, *, used: float) -> None:
        """Take in how far a job is, and how many core-seconds it has used by then."""
        if progress.step is None:
            return
        if self._from is None or progress.step < self._from[0] or used < self._from[1]:
            self._from = (progress.step, used)
            return
        step, before = self._from
        if progress.step > step and used - before >= _LEAST_USED:
            self._each = (used - before) / (progress.step - step)

    def left(self, progress: Progress) -> float | None:
        """Return the core-seconds to the end of a job, infinite while that is not known yet.

        None for a job that does not print how many steps it has.
        """
        if progress.total is None or progress.step is None:
            return None
        steps = max(0, progress.total - progress.step)
        return steps * self._each if steps else 0.0
