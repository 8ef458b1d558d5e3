"""Measurements of a job on a card: the time of its steps, and its share of the card's time.

The sum of the normalised speeds of all jobs on a card shows whether sharing gains anything. A
normalised speed is the speed beside others / the speed alone. Below a sum of 1, the jobs would end
sooner one after the other (W. Xiao et al., "Gandiva", OSDI 2018).
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

WINDOW = 10.0
"""A sharer gets its share of each period of this many seconds, but not of shorter periods."""


class BoundedGrowth:
    """The growth of a counter of seconds, bounded by the time that has passed.

    The user's code writes the counter, so any number may be in it. `count`: its value at `now`.
    Work is counted at its end and may have started long before, so time in which the counter did
    not grow can be claimed later.
    """

    def __init__(self, count: float, *, now: float) -> None:
        self._count = count
        self._read_at = now
        self._unclaimed = 0.0

    def update(self, count: float, *, now: float) -> float:
        """Return the growth since the last call; a decrease counts as 0."""
        self._unclaimed += now - self._read_at
        growth = min(max(count - self._count, 0.0), self._unclaimed)
        self._unclaimed -= growth
        self._count, self._read_at = count, now
        return growth


class Recent:
    """Sums up seconds of the last `WINDOW`."""

    def __init__(self) -> None:
        self._added: deque[tuple[float, float]] = deque()

    def add(self, seconds: float, *, now: float) -> None:
        """Add the seconds since the last call."""
        self._added.append((now, seconds))
        while now - self._added[0][0] >= WINDOW:
            self._added.popleft()

    @property
    def share(self) -> float:
        """The sum as a fraction of the window; the time before the first call counts as 0."""
        return sum(seconds for _, seconds in self._added) / WINDOW


_SPAN = 1.0
"""Steps are averaged over this many seconds: a gate passes several steps, then none for a while."""
_MAX_TIMES = 30
_MIN_TIMES = 3
_OUTLIER = 3.0
"""A step that takes this many times the median includes an evaluation or a checkpoint."""
_STEPS_PER_OUTLIER = 20
"""At most one step in this many, rounded up, is such an outlier; other long steps were slowed down
by other jobs."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The number of steps on a job's page at the time `at`, and the time of the last step."""

    at: float
    steps: int
    stepped: float


class Stretch:
    """Times steps that are all made under the same conditions; the first step is skipped.

    Each time is the mean over the steps in at least `span` seconds. `began`: the start of the
    stretch.
    """

    def __init__(self, first: Reading, *, span: float = 0.0) -> None:
        self.began = first.at
        self._span = span
        self._steps = first.steps
        self._stepped: float | None = None

    def record(self, reading: Reading) -> float | None:
        """Return the mean time of the latest steps, or None before there are enough."""
        steps = reading.steps - self._steps
        previous = self._stepped
        if steps <= 0:
            if steps < 0:  # another process counts, or the count is false
                self._steps, self._stepped = reading.steps, None
            return None
        if previous is None or reading.stepped < previous:
            self._steps, self._stepped = reading.steps, reading.stepped
            return None
        elapsed = reading.stepped - previous
        if elapsed <= 0 or elapsed < self._span:
            return None
        self._steps, self._stepped = reading.steps, reading.stepped
        return elapsed / steps


def typical(times: Iterable[float]) -> float:
    """Return the mean of times, without outliers in which the job also evaluated or saved."""
    ordered = sorted(times)
    longest = _OUTLIER * median(ordered)
    kept = len(ordered) - math.ceil(len(ordered) / _STEPS_PER_OUTLIER)
    return fmean(time for index, time in enumerate(ordered) if index < kept or time <= longest)


class Throughput:
    """Times the steps of one job, alone on its card and beside others."""

    def __init__(self) -> None:
        self._stretch: Stretch | None = None
        self._alone = False
        self._times: dict[bool, deque[float]] = {
            alone: deque(maxlen=_MAX_TIMES) for alone in (True, False)
        }

    def record(self, reading: Reading, *, alone: bool) -> None:
        """Record the job's progress; `alone`: whether only it used the card since the last call."""
        if self._stretch is None or alone is not self._alone:
            self._stretch, self._alone = Stretch(reading, span=_SPAN), alone
            return
        step_time = self._stretch.record(reading)
        if step_time is not None:
            self._times[alone].append(step_time)

    def restart(self) -> None:
        """Forget the progress of the job: it was held back, or its processes have changed."""
        self._stretch = None

    @property
    def normalised(self) -> float | None:
        """Its speed beside others / its speed alone, or None before both are measured."""
        alone, beside = self._times[True], self._times[False]
        if min(len(alone), len(beside)) < _MIN_TIMES:
            return None
        return typical(alone) / typical(beside)


STRETCH = 60.0
"""The shortest stretch in seconds."""
_STEPS = 3
"""The fewest steps of a stretch, so that a job with long steps is measured correctly too."""
_STRETCHES = 5
"""The number of stretches in the mean; older stretches are dropped, as the job may have changed."""


class Profile:
    """Measures the fraction of the time in which a job would use its card if it were alone on it.

    The job is measured in stretches of its steps, one after the other. Waiting for others counts
    neither as work nor as time in which the job could have worked. Steps that others slow down make
    the fraction too large, never too small.

    The first stretch starts after the first step: earlier time, such as for loading data, says
    nothing about the training.
    """

    def __init__(self) -> None:
        self._measured: deque[tuple[float, float]] = deque(maxlen=_STRETCHES)
        self._first_step: int | None = None
        self._began = False
        self._used = self._usable = 0.0

    @property
    def busy(self) -> float | None:
        """The fraction over the last stretches, or None before the end of the first stretch."""
        usable = sum(usable for _, usable in self._measured)
        return sum(used for used, _ in self._measured) / usable if usable else None

    def record(self, steps: int, *, used: float, usable: float) -> None:
        """Record the steps of the job so far, and two durations since the last call, in seconds.

        `used`: the time on the card, below 0 if an earlier call stated too much. `usable`: the time
        in which the job used the card or could have used it.
        """
        if self._first_step is None or steps < self._first_step:  # another process counts
            self.restart()
            self._first_step = steps
        elif not self._began:
            self._began, self._first_step = steps > self._first_step, steps
        else:
            self._used += used
            self._usable += usable
            if self._usable >= STRETCH and steps - self._first_step >= _STEPS:
                self._measured.append((min(max(self._used, 0.0), self._usable), self._usable))
                self._first_step, self._used, self._usable = steps, 0.0, 0.0

    def restart(self) -> None:
        """Start a new stretch with the next step: the job's processes have changed."""
        self._first_step, self._began = None, False
        self._used = self._usable = 0.0
