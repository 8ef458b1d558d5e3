"""Measurements of a job on a card: the time of its steps, and its part of the card's time.

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
"""Shares hold over this many seconds: a sharer may be ahead or behind for a shorter time."""


class BoundedGrowth:
    """The growth of a counter of seconds, bounded by the time that has passed.

    The user's code writes the counter, so any number may be in it. `count`: its value at `now`.
    Work is counted at its end and may have started long before, so time in which the counter did
    not grow can be claimed later.
    """

    def __init__(self, count: float, *, now: float) -> None:
        self._count = count
        self._read = now
        self._unclaimed = 0.0

    def grown(self, count: float, *, now: float) -> float:
        """Return the growth since the last call; a step backwards counts as 0."""
        self._unclaimed += now - self._read
        grown = min(max(count - self._count, 0.0), self._unclaimed)
        self._unclaimed -= grown
        self._count, self._read = count, now
        return grown


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
        """The sum, as a part of the window; the time before the first call counts as 0."""
        return sum(seconds for _, seconds in self._added) / WINDOW


_SPAN = 1.0
"""Steps are averaged over this many seconds: a gate passes several steps, then none for a while."""
_TIMES = 30
_ENOUGH = 3
_OTHERWISE = 3.0
"""A step of this many median steps includes an evaluation or a checkpoint."""
_STEPS_TO_OTHERS = 20
"""At most one step in this many, rounded up, counts as such; more are due to other jobs."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of a job's page: the steps made until `at`, and the time of the last, `stepped`."""

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

    def note(self, reading: Reading) -> float | None:
        """Return the time of a step, or None without enough steps so far."""
        steps = reading.steps - self._steps
        previous = self._stepped
        if steps <= 0:
            if steps < 0:  # the steps are of another process, or the process lies
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
    longest = _OTHERWISE * median(ordered)
    fewest = len(ordered) - math.ceil(len(ordered) / _STEPS_TO_OTHERS)
    return fmean(time for index, time in enumerate(ordered) if index < fewest or time <= longest)


class Throughput:
    """Times the steps of one job, alone on its card and beside others."""

    def __init__(self) -> None:
        self._stretch: Stretch | None = None
        self._alone = False
        self._times: dict[bool, deque[float]] = {
            alone: deque(maxlen=_TIMES) for alone in (True, False)
        }

    def note(self, reading: Reading, *, alone: bool) -> None:
        """Record the job's progress; `alone`: it had the card to itself since the last call."""
        if self._stretch is None or alone is not self._alone:
            self._stretch, self._alone = Stretch(reading, span=_SPAN), alone
            return
        step_time = self._stretch.note(reading)
        if step_time is not None:
            self._times[alone].append(step_time)

    def restart(self) -> None:
        """Forget the progress of the job: it was held back, or its processes have changed."""
        self._stretch = None

    @property
    def normalised(self) -> float | None:
        """Its speed beside others / its speed alone; None before both are measured."""
        alone, beside = self._times[True], self._times[False]
        if min(len(alone), len(beside)) < _ENOUGH:
            return None
        return typical(alone) / typical(beside)


STRETCH = 60.0
"""The shortest measurement in seconds."""
_STEPS = 3
"""The fewest steps of a measurement, so that it is valid for a job with long steps too."""
_STRETCHES = 5
"""The measurements in the mean: the job may change later."""


class Profile:
    """Measures the part of the time in which a job would use its card if it were alone on it.

    The job is measured in stretches of its steps, one after the other. Waiting for others counts
    neither as work nor as time in which the job could have worked. Work that is faster alone, such
    as steps that others slow down, makes the part too large, not too small.

    The first stretch starts after the first step: earlier time, such as for loading data, says
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
        """Record the steps of the job so far, and two durations since the last call, in seconds.

        `used`: the time on the card, below 0 if an earlier call stated too much. `could`: the time
        in which the job used the card or could have used it.
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
        """Start a new stretch with the next step: the job's processes have changed."""
        self._from, self._began = None, False
        self._used = self._could = 0.0
