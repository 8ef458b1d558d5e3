"""The loss of speed of a high-priority job, compared with the card to itself.

For one second in thirty the other sharers are held back while the job's steps are timed; between
such windows the steps are timed too. The meter compares means, because a median would hide losses
in a minority of the steps; a checkpoint or an evaluation does not count. A window lasts for at
least three steps, so it is longer for long steps, but never over `LONGEST_HELD` seconds: the loss
of a job with steps of over 12 s stays unknown. Steps that overlap a micro-step of another job
are discarded; the window is extended by their duration, up to `LONGEST_HELD`, or briefly while the
known loss is over the budget. Times are of one monotonic clock, in seconds.
"""

from collections import deque
from itertools import chain

from kfext.gpu.rules.measures import WINDOW, Reading, Stretch, typical

HELD_SECONDS = 1.0
"""The shortest window; a window lasts until it has enough steps."""
PERIODS = 30
"""The time between two windows, in window lengths."""
_LEAST_PAUSE = 3
"""The shortest pause, in window lengths with all extensions: a window delays all other jobs."""
LONGEST_HELD = 60.0
_HELD_STEPS = 5
"""The longest window in steps, if longer than `WINDOW`: a job may evaluate or save in it."""
_STEPS = 3
WINDOWS = 5
"""Clean windows that count; `FRESH` new windows, clean or not, confirm a loss."""
FRESH = 3


class LossMeter:
    """Times the steps of one job, and decides when the other jobs are held back for it.

    `budget`: the part of its speed that the job may lose. Call `note` several times a second, and
    hold the others back while `holding` is true. `windows`: the number of windows with steps, even
    beside a job that did not stop: they confirm a loss. `step_seconds`: the time of a step with the
    card to itself. `loss`: the part of its speed that the job loses, below 0 if it gains. Both are
    None before they are known.
    `held_back`: whether all others do stop in a window. If not, a window shows nothing about the
    job alone, and the earlier measurements still count. `disturbed`: whether another job may work
    now although it is held back; steps beside that job do not count.
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
        """Record the progress of the job; start or end a window if it is due."""
        if self._stretch is None:
            self._stretch = Stretch(reading)
            self._next = max(self._next, reading.at + HELD_SECONDS)
            return
        step_time = self._stretch.note(reading)
        if self.holding:
            self._spoilt = self._spoilt or self.disturbed
            if step_time is not None:
                if self._spoilt:
                    self._lost += step_time * max(reading.steps - self._steps, 0)
                else:
                    self._held.append(step_time)
            if reading.steps != self._steps:
                self._spoilt = self.disturbed
            self._steps = reading.steps
            self._end_window(reading, self._stretch.began)
            return
        if step_time is not None:
            self._shared.append((reading.at, step_time))
            while len(self._shared) > _STEPS and reading.at - self._shared[0][0] > WINDOW:
                self._shared.popleft()
            self._compare()
        # A job without steps is not timed, so the others are not held back for it.
        if step_time is not None and reading.at >= self._due(self._stretch.began):
            self.holding, self._held = True, []
            self._spoilt, self._lost, self._steps = False, 0.0, reading.steps
            self._stretch = Stretch(reading)
            self._next = reading.at + PERIODS * HELD_SECONDS

    def restart(self) -> None:
        """Forget the steps beside others: the other jobs, or the job's processes, have changed."""
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
        """The excess of the loss over the budget, in budgets; below 0 within it or if unknown."""
        return (self.loss or 0.0) / self.budget - 1

    def _compare(self) -> None:
        if self.step_seconds is not None and len(self._shared) >= _STEPS:
            self.loss = 1 - self.step_seconds / typical(took for _, took in self._shared)

    def _due(self, end: float) -> float:
        """Return the time of the next window; it is sooner if the job is over its budget."""
        return min(self._next, end + WINDOW) if self.over else self._next

    def _end_window(self, reading: Reading, began: float) -> None:
        """End the current window, if it has enough steps or has lasted too long."""
        elapsed = reading.at - began
        enough = len(self._held) >= _STEPS
        shared = typical(took for _, took in self._shared) if self._shared else 0.0
        longest = min(max(WINDOW, _HELD_STEPS * shared), LONGEST_HELD)
        longest += min(self._lost, WINDOW if self.over else LONGEST_HELD)
        if not (enough and elapsed >= HELD_SECONDS) and elapsed < longest:
            return
        if enough and self.held_back:
            self._alone.append(self._held)
            self.step_seconds = typical(chain(*self._alone))
        if enough or self._lost > 0:
            self.windows += 1
            self._compare()
        self.holding = False
        measured = max(elapsed - self._lost, HELD_SECONDS)
        self._next = reading.at + max((PERIODS - 1) * measured, _LEAST_PAUSE * elapsed)
        self._stretch = Stretch(reading)
