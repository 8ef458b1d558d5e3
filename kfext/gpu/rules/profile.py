"""The part of the time in which a job would keep its card busy if it had the card to itself.

Waiting for others counts neither as work nor as time in which the job could have worked. Work that
is faster alone, such as steps that others slow down, makes the part too large, not too small.
"""

from collections import deque

STRETCH = 60.0
"""The shortest measurement in seconds."""
_STEPS = 3
"""The fewest steps of a measurement, so that it holds for a job with long steps too."""
_STRETCHES = 5
"""Measurements in the mean: a job may do something else later."""


class Profile:
    """Measures one job in stretches of its steps, one after the other.

    The first stretch begins after the first step: earlier time, such as for loading data, says
    nothing about the training.
    """

    def __init__(self) -> None:
        self._measured: deque[tuple[float, float]] = deque(maxlen=_STRETCHES)
        self._from: int | None = None
        self._began = False
        self._used = self._could = 0.0

    @property
    def busy(self) -> float | None:
        """The part over the last stretches, or None before the end of the first stretch."""
        could = sum(could for _, could in self._measured)
        return sum(used for used, _ in self._measured) / could if could else None

    def note(self, steps: int, *, used: float, could: float) -> None:
        """Record the steps of the job so far, and two numbers of seconds since the last call.

        `used`: the time on the card, below 0 if an earlier call stated too much. `could`: the time
        in which the job used the card or could have.
        """
        if self._from is None or steps < self._from:  # the steps are of another process
            self.restart()
            self._from = steps
        elif not self._began:
            self._began, self._from = steps > self._from, steps
        else:
            self._used += used
            self._could += could
            if self._could >= STRETCH and steps - self._from >= _STEPS:
                self._measured.append((min(max(self._used, 0.0), self._could), self._could))
                self._from, self._used, self._could = steps, 0.0, 0.0

    def restart(self) -> None:
        """Begin a new stretch with the next step: the job's processes have changed."""
        self._from, self._began = None, False
        self._used = self._could = 0.0
