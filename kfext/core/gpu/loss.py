"""How much slower a job of high priority is than it would be with the card for itself.

For a second in thirty the others on the card are held back, and its steps are timed. A step takes
as long as the median of the last such windows. Times are of one monotonic clock, in seconds.
"""

from collections import deque
from dataclasses import dataclass
from statistics import median

HELD_SECONDS = 1.0
"""Of a window at least; it lasts until enough steps were made in it."""
PERIODS = 30
"""A window is held again after so many times its length."""
_STEPS = 3
_LONGEST_SECONDS = 10.0
"""After which a window ends in any case: the job evaluates, or saves a checkpoint."""
_WINDOWS = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """Of a job's page: how many steps it has made until `at`, and when it made the last of them."""

    at: float
    steps: int
    stepped: float


@dataclass(slots=True)
class _Stretch:
    """Steps that were all made under the same conditions; the first one is not among them."""

    began: float
    before: int
    first: Reading | None = None
    last: Reading | None = None

    def note(self, reading: Reading) -> None:
        if reading.steps <= self.before:
            return  # the last step was made before
        if self.first is None:
            self.first = reading  # it was begun before
        self.last = reading

    @property
    def steps(self) -> int:
        return self.last.steps - self.first.steps if self.first and self.last else 0

    @property
    def seconds(self) -> float:
        """The mean time of a step."""
        assert self.first is not None
        assert self.last is not None
        return (self.last.stepped - self.first.stepped) / self.steps


class LossMeter:
    """Times the steps of one job, and decides when the others are held back for that.

    Call `note` some times in a second, and hold the others back while `holding` is true.
    """

    def __init__(self, now: float) -> None:
        self.holding = False
        self._next = now + HELD_SECONDS
        self._stretch = _Stretch(now, before=0)
        self._alone: deque[float] = deque(maxlen=_WINDOWS)
        self._shared: float | None = None

    def note(self, reading: Reading) -> None:
        """Take in how far the job is; begin or end a window if it is time to."""
        stretch = self._stretch
        stretch.note(reading)
        if not self.holding and stretch.steps >= _STEPS:
            self._shared = stretch.seconds
        lasted = reading.at - stretch.began
        enough = lasted >= HELD_SECONDS and stretch.steps >= _STEPS
        if self.holding and (enough or lasted >= _LONGEST_SECONDS):
            if stretch.steps >= _STEPS:
                self._alone.append(stretch.seconds)
            self._next = reading.at + (PERIODS - 1) * lasted
            self._turn(reading)
        elif not self.holding and reading.at >= self._next:
            self._turn(reading)

    @property
    def step_seconds(self) -> float | None:
        """How long a step takes with the card for itself, None before that was measured."""
        return median(self._alone) if self._alone else None

    @property
    def loss(self) -> float | None:
        """The part of its speed that the job loses, below 0 if it gains; None if unknown."""
        if not self._alone or not self._shared:
            return None
        return 1 - median(self._alone) / self._shared

    def _turn(self, reading: Reading) -> None:
        self.holding = not self.holding
        self._stretch = _Stretch(reading.at, before=reading.steps)
