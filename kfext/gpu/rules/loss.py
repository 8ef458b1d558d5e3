"""How much slower a job of high priority is than it would be with the card for itself.

For a second in thirty the others on the card are held back, and the job's steps are timed; between
such windows they are timed as well. Means are compared, as a median would hide what is lost in a
minority of the steps, but a checkpoint or an evaluation counts neither here nor there. A window
lasts for three steps and more, so longer for long steps, but never over `LONGEST_HELD` seconds: the
loss of a job with steps of over 12 s stays unknown. Steps during which another job still works, as
a long micro-step has not ended or a ticket lets it, do not count, and the window is extended by the
time that they took, up to `LONGEST_HELD`; if a loss is known, and over the budget, by a short time
only. Times are of one monotonic clock, in seconds.
"""

from collections import deque
from itertools import chain

from kfext.gpu.rules.steps import Reading, Stretch, typical
from kfext.gpu.rules.tally import WINDOW

HELD_SECONDS = 1.0
"""Of a window at least; it lasts until enough steps were made in it."""
PERIODS = 30
"""A window is held again after so many times its length."""
_LEAST_PAUSE = 3
"""Times the length of a window too, however much of it was not measured: it costs all others."""
LONGEST_HELD = 60.0
_HELD_STEPS = 5
"""Of a window at most, if that is more than `WINDOW`: the job evaluates, or saves a checkpoint."""
_STEPS = 3
WINDOWS = 5
"""Clean windows that count; `FRESH` new ones, clean or not, confirm a loss."""
FRESH = 3


class LossMeter:
    """Times the steps of one job, and decides when the others are held back for that.

    `budget` is the part of its speed that the job may lose. Call `note` some times in a second, and
    hold the others back while `holding` is true. `windows` counts those in which steps were made,
    also beside a job that did not stop: they confirm what is lost. `step_seconds`: how long a step
    takes with the card to itself; `loss`: the part of its speed that the job loses, below 0 if it
    gains. Both are None while they are unknown.
    `held_back`: whether all others do stop in a window. If not, a window shows nothing of the job
    with the card to itself, and what was known of that before still counts. `disturbed`: whether
    one of them may work now although it is held back; the steps beside it do not count.
    """

    def __init__(self, *, budget: float) -> None:
        self.budget = budget
        self.holding = False
        self.held_back = True
        self.disturbed = False
        self.windows = 0
        self.step_seconds: float | None = None
        self.loss: float | None = None
        self._next = 0.0
        self._steps = 0
        self._stretch: Stretch | None = None
        self._held: list[float] = []
        self._spoilt = False
        self._lost = 0.0
        self._alone: deque[list[float]] = deque(maxlen=WINDOWS)
        self._shared: deque[tuple[float, float]] = deque()

    def note(self, reading: Reading) -> None:
        """Take in how far the job is; begin or end a window if it is time to."""
        if self._stretch is None:
            self._stretch = Stretch(reading)
            self._next = max(self._next, reading.at + HELD_SECONDS)
            return
        took = self._stretch.note(reading)
        if self.holding:
            self._spoilt = self._spoilt or self.disturbed
            if took is not None:
                if self._spoilt:
                    self._lost += took * max(reading.steps - self._steps, 0)
                else:
                    self._held.append(took)
            if reading.steps != self._steps:
                self._spoilt = self.disturbed
            self._steps = reading.steps
            self._end_window(reading, self._stretch.began)
            return
        if took is not None:
            self._shared.append((reading.at, took))
            while len(self._shared) > _STEPS and reading.at - self._shared[0][0] > WINDOW:
                self._shared.popleft()
            self._compare()
        # A job that makes no steps is not timed, so nobody is held back for it.
        if took is not None and reading.at >= self._due(self._stretch.began):
            self.holding, self._held = True, []
            self._spoilt, self._lost, self._steps = False, 0.0, reading.steps
            self._stretch = Stretch(reading)
            self._next = reading.at + PERIODS * HELD_SECONDS

    def restart(self) -> None:
        """Forget the steps beside others: these, or the processes of the job, are not the same."""
        self._stretch = None
        self._shared.clear()
        self.holding = False
        self.loss = None

    @property
    def over(self) -> bool:
        """Whether the job is known to lose more than its budget."""
        return self.loss is not None and self.loss > self.budget

    @property
    def excess(self) -> float:
        """How far the loss is over the budget, in budgets; below 0 within it, or if unknown."""
        return (self.loss or 0.0) / self.budget - 1

    def _compare(self) -> None:
        if self.step_seconds is not None and len(self._shared) >= _STEPS:
            self.loss = 1 - self.step_seconds / typical(took for _, took in self._shared)

    def _due(self, ended: float) -> float:
        """Return when to hold a window, the last of which has ended then; sooner if in doubt."""
        return min(self._next, ended + WINDOW) if self.over else self._next

    def _end_window(self, reading: Reading, began: float) -> None:
        """End the window that began then, if it has seen enough, or has lasted for too long."""
        lasted = reading.at - began
        enough = len(self._held) >= _STEPS
        usual = typical(took for _, took in self._shared) if self._shared else 0.0
        longest = min(max(WINDOW, _HELD_STEPS * usual), LONGEST_HELD)
        longest += min(self._lost, WINDOW if self.over else LONGEST_HELD)
        if not (enough and lasted >= HELD_SECONDS) and lasted < longest:
            return
        if enough and self.held_back:
            self._alone.append(self._held)
            self.step_seconds = typical(chain(*self._alone))
        if enough or self._lost > 0:
            self.windows += 1
            self._compare()
        self.holding = False
        measured = max(lasted - self._lost, HELD_SECONDS)
        self._next = reading.at + max((PERIODS - 1) * measured, _LEAST_PAUSE * lasted)
        self._stretch = Stretch(reading)
