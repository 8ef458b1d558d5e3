"""The part of the time for which a job would keep its card busy if it had it to itself.

Waits for others count neither as work nor as time in which it could have worked. What a job does
faster alone, such as steps that others slow down, makes the part too large rather than too small.
"""

from collections import deque

STRETCH = 60.0
"""Seconds of one measurement at least."""
_STEPS = 3
"""Of one measurement at least, so that it holds for a job with long steps too."""
_STRETCHES = 5
"""Measurements of which the mean is taken: a job may do something else later."""


class Profile:
    """Measures one job in stretches of its steps, one after the other.

    The first stretch begins when the first step has been made: what comes before, such as data that
    is loaded, says nothing of what follows.
    """

    def __init__(self) -> None:
        self._measured: deque[tuple[float, float]] = deque(maxlen=_STRETCHES)
        self._from: int | None = None
        self._began = False
        self._used = self._could = 0.0

    @property
    def busy(self) -> float | None:
        """The part over the last stretches, None before the first one has ended."""
        could = sum(could for _, could in self._measured)
        return sum(used for used, _ in self._measured) / could if could else None

    def note(self, steps: int, *, used: float, could: float) -> None:
        """Take in how many steps the job has made, and two numbers of seconds since the last call.

        `used`: in which it has used the card, below 0 if too much was stated before; `could`: in
        which it did or could have.
        """
        if self._from is None or steps < self._from:  # another process counts
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
        """Begin a stretch anew, with the next step: its processes are others than before."""
        self._from, self._began = None, False
        self._used = self._could = 0.0
