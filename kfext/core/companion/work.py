"""How much CPU a job still takes to its end, by what its steps have taken so far."""

import math
from dataclasses import dataclass

from kfext.core.progress.course import Progress
from kfext.model.cpu_use import CpuUse

_LEAST_SECONDS, _LEAST_CPU = 20.0, 2.0
"""Seconds, and core-seconds, after which the CPU of a step is known."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A step and when it was printed; what was used in all, and when that was measured."""

    step: int
    at: float
    cpu: float
    measured: float


class Work:
    """Follows one job from when its use is known and it shows a step; again if steps go back.

    Steps and CPU are known of different times, so what is compared are their rates.
    """

    def __init__(self) -> None:
        self._cpu = 0.0
        self._measured: dict[str, float] = {}
        self._from: _Mark | None = None
        self._last = 0
        self._each = math.inf

    def measure(self, pod: str, use: CpuUse) -> None:
        """Take in the use of a pod, by uid, whenever it was measured anew."""
        before = self._measured.get(pod)
        if before is not None and use.at > before:
            self._cpu += use.cores * (use.at - before)
        if before is None or use.at > before:
            self._measured[pod] = use.at

    def take(self, progress: Progress) -> None:
        """Take in how far a job is."""
        if progress.step is None or progress.at is None or not self._measured:
            return
        now = _Mark(progress.step, progress.at, self._cpu, max(self._measured.values()))
        back, self._last = now.step < self._last, now.step
        if self._from is None or back:
            self._from = now
            return
        steps, cpu = now.step - self._from.step, now.cpu - self._from.cpu
        seconds, measured = now.at - self._from.at, now.measured - self._from.measured
        if steps and cpu >= _LEAST_CPU and min(seconds, measured) >= _LEAST_SECONDS:
            self._each = (cpu / measured) / (steps / seconds)

    def left(self, progress: Progress) -> float | None:
        """Return the core-seconds to the end of a job, infinite while that is not known yet.

        None for a job that does not print how many steps it has.
        """
        if progress.total is None or progress.step is None:
            return None
        steps = max(0, progress.total - progress.step)
        return steps * self._each if steps else 0.0
