"""The measurements of a job: its rate and CPU use by window, and the CPU time to its end."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

from kfext.core.progress.followed import INTERVAL
from kfext.core.progress.reported import Progress
from kfext.model.cpu_use import CpuUse
from kfext.state.running.proposal import Measure

_WINDOWS = 4


class History:
    """The rate and the CPU use of a job; `rate`: steps a second in the last window, or None."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._values: dict[Measure, deque[float]] = {
            measure: deque(maxlen=_WINDOWS) for measure in Measure
        }
        self._before: tuple[float, int] | None = None
        self._ended: float | None = None

    def add_interval(self, progress: Progress, use: int | None, *, now: float) -> bool:
        """Record the job's progress and use, and return whether a window has ended.

        `use`: the CPU use of its pods, in millicores. `now`: monotonic.
        """
        if self._ended is not None and now - self._ended < INTERVAL:
            return False
        self._ended = now
        self.rate = self._rate(progress)
        for measure, value in ((Measure.RATE, self.rate), (Measure.USE, use)):
            if value is not None:
                self._values[measure].append(value)
        return True

    def forget(self) -> None:
        """Forget all windows, after a change of the conditions."""
        for values in self._values.values():
            values.clear()

    def values_of(self, measure: Measure) -> tuple[float, ...]:
        """Return the last values of a measure, newest last."""
        return tuple(self._values[measure])

    def _rate(self, progress: Progress) -> float | None:
        """Return the steps a second since the last window, or None without two reports.

        The reported rate covers the last minutes, so it would show a change late.
        """
        before, self._before = self._before, None
        if progress.step is None or progress.at is None:
            return None
        self._before = at, step = progress.at, progress.step
        if before is None or at <= before[0] or step < before[1]:
            return None
        return (step - before[1]) / (at - before[0])


_LEAST_SECONDS = 10.0
"""The shortest time over which the CPU time of a step is measured."""
_KEPT = 16
"""The number of reported steps and of CPU measurements that are kept, to pair them by time."""


class Work:
    """Measures the CPU time of a step since the first known use and step, again if steps go back.

    A measurement of CPU arrives some seconds late, so it is paired with the step at its own time.
    The newest measurement that is no later than the last step counts, as delays differ by node.
    """

    def __init__(self) -> None:
        self._cpu = 0.0
        self._measured: dict[str, float] = {}
        self._used: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._steps: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._from: tuple[float, float, float] | None = None
        self._each = math.inf
        self._assumed = False

    def measure(self, pod: str, use: CpuUse, *, assumed: bool = False) -> None:
        """Record a new measurement of a pod, by uid.

        `assumed`: whether the use is an assumption, which the first measurement replaces.
        """
        if self._assumed and not assumed:
            self._measured.clear()
            self._used.clear()
            self._from = None
        self._assumed = assumed
        before = self._measured.get(pod, use.at - use.window)
        if not self._measured:
            self._used.append((before, self._cpu))
        if use.at > before:
            self._cpu += use.cores * (use.at - before)
            self._measured[pod] = use.at
            newest = max(self._measured.values())
            if self._used[-1][0] == newest:
                self._used.pop()
            self._used.append((newest, self._cpu))

    def add_progress(self, progress: Progress) -> None:
        """Record the progress of the job."""
        if progress.step is None or progress.at is None:
            return
        if self._steps and progress.step < self._steps[-1][1]:
            self._steps.clear()
            self._from = None
        if not self._steps and progress.rate:
            # The rate covers the time before the first report, so it gives an earlier step.
            seconds = min(_LEAST_SECONDS, progress.step / progress.rate)
            self._steps.append((progress.at - seconds, progress.step - seconds * progress.rate))
        if not self._steps or progress.at > self._steps[-1][0]:
            self._steps.append((progress.at, progress.step))
        newest = next(self._paired(reversed(self._used)), None)
        self._from = self._from or next(self._paired(self._used), None)
        if newest is None or self._from is None:
            return
        (at, step, cpu), (since, first, before) = newest, self._from
        if step > first and at - since >= _LEAST_SECONDS:
            self._each = (cpu - before) / (step - first)

    def remaining(self, progress: Progress) -> float | None:
        """Return the core-seconds to the end of the job, infinite while unknown.

        Return None for a job that does not report its total of steps.
        """
        if progress.total is None or progress.step is None:
            return None
        steps = max(0, progress.total - progress.step)
        return steps * self._each if steps else 0.0

    def completed(self, progress: Progress) -> float:
        """Return the core-seconds of the job's completed steps, 0 while unknown.

        Its measured use is the minimum, as its steps may begin at 1 again in each epoch.
        """
        return max(self._cpu, (progress.step or 0) * self._each) if self._each < math.inf else 0.0

    def _paired(
        self, measurements: Iterable[tuple[float, float]]
    ) -> Iterator[tuple[float, float, float]]:
        """Yield the measurements with a known step: time, step, and the CPU time until then."""
        for time, cpu in measurements:
            step = self._step_at(time)
            if step is not None:
                yield time, step, cpu

    def _step_at(self, at: float) -> float | None:
        """Return the interpolated step at a time, or None without reports before and after it."""
        for (begins, before), (ends, after) in pairwise(self._steps):
            if begins <= at <= ends:
                return before + (after - before) * (at - begins) / (ends - begins)
        return None
