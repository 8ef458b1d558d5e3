"""The loss of speed of a high-priority job, compared with the card to itself.

For one second in thirty the other sharers are held back while the job's steps are timed; between
such windows the steps are timed too. The meter compares means, because a median would hide losses
in a minority of the steps; a checkpoint or an evaluation does not count. A window lasts for at
least three steps, so it is longer for long steps, but never over `LONGEST_HELD` seconds: the loss
of a job with steps of over 12 s stays unknown. Steps that overlap a micro-step of another job
are discarded; the window is extended by their duration, up to `LONGEST_HELD`, but only up to
`WINDOW` while the known loss is over the budget. Times are of one monotonic clock, in seconds.
"""

from collections import deque
from itertools import chain

from kfext.gpu.rules.measures import WINDOW, Reading, Stretch, typical

HELD_SECONDS = 1.0
"""The shortest window; a window lasts until it has enough steps."""
PERIOD = 30
"""The time from the start of a window to the start of the next, in window lengths."""
_MIN_PAUSE = 3
"""The shortest pause, in window lengths with all extensions: a window delays all other jobs."""
LONGEST_HELD = 60.0
_HELD_STEPS = 5
"""The longest window in steps, if that is longer than `WINDOW`: a job may save during a window."""
_STEPS = 3
WINDOWS = 5
"""The number of the last windows in the mean; all other jobs stopped in them."""
FRESH = 3
"""The number of new windows that confirm a loss, even if another job did not stop in them."""


class LossMeter:
    """Times the steps of one job, and decides when the other jobs are held back for it.

    `budget`: the fraction of its speed that the job may lose. Call `record` several times a second,
    and hold the others back while `holding` is true. `windows`: the number of windows with steps so
    far. `step_seconds`: the time of a step with the card to itself. `loss`: the fraction of its
    speed that the job loses, below 0 if it gains. Both are None before they are measured.
    `held_back`: whether all other jobs do stop in a window. If not, a window shows nothing about
    the job alone, and the earlier measurements still count. `disturbed`: whether another job may
    work now although it is held back; steps beside that job do not count.
    """

    def __init__(self, *, budget: float) -> None:
        self.budget = budget
        self.holding = False
        self.held_back = True
        self.disturbed = False
        self.windows = 0
        self.step_seconds: float | None = None
        self.loss: float | None = None
        self._next_window = 0.0
        self._steps = 0
        self._stretch: Stretch | None = None
        self._held: list[float] = []
        self._spoilt = False
        self._spoilt_seconds = 0.0
        self._alone: deque[list[float]] = deque(maxlen=WINDOWS)
        self._shared: deque[tuple[float, float]] = deque()

    def record(self, reading: Reading) -> None:
        """Record the progress of the job; start or end a window if it is due."""
        if self._stretch is None:
            self._stretch = Stretch(reading)
            self._next_window = max(self._next_window, reading.at + HELD_SECONDS)
            return
        step_time = self._stretch.record(reading)
        if self.holding:
            self._spoilt = self._spoilt or self.disturbed
            if step_time is not None:
                if self._spoilt:
                    self._spoilt_seconds += step_time * max(reading.steps - self._steps, 0)
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
        if step_time is not None and reading.at >= self._window_due(self._stretch.began):
            self.holding, self._held = True, []
            self._spoilt, self._spoilt_seconds, self._steps = False, 0.0, reading.steps
            self._stretch = Stretch(reading)
            self._next_window = reading.at + PERIOD * HELD_SECONDS

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
        """The loss / the budget - 1; an unknown loss counts as 0."""
        return (self.loss or 0.0) / self.budget - 1

    def _compare(self) -> None:
        if self.step_seconds is not None and len(self._shared) >= _STEPS:
            self.loss = 1 - self.step_seconds / typical(seconds for _, seconds in self._shared)

    def _window_due(self, last_end: float) -> float:
        """Return the time of the next window; it is sooner if the job is over its budget."""
        return min(self._next_window, last_end + WINDOW) if self.over else self._next_window

    def _end_window(self, reading: Reading, began: float) -> None:
        """End the current window, if it has enough steps or has lasted too long."""
        elapsed = reading.at - began
        enough = len(self._held) >= _STEPS
        shared = typical(seconds for _, seconds in self._shared) if self._shared else 0.0
        longest = min(max(WINDOW, _HELD_STEPS * shared), LONGEST_HELD)
        longest += min(self._spoilt_seconds, WINDOW if self.over else LONGEST_HELD)
        if not (enough and elapsed >= HELD_SECONDS) and elapsed < longest:
            return
        if enough and self.held_back:
            self._alone.append(self._held)
            self.step_seconds = typical(chain(*self._alone))
        if enough or self._spoilt_seconds > 0:
            self.windows += 1
            self._compare()
        self.holding = False
        clean = max(elapsed - self._spoilt_seconds, HELD_SECONDS)
        self._next_window = reading.at + max((PERIOD - 1) * clean, _MIN_PAUSE * elapsed)
        self._stretch = Stretch(reading)
