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
"""The number of windows with kept values; a window is INTERVAL seconds or longer."""


class History:
    """The rate and the CPU use of a job; `rate`: steps a second in the last window, if known."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._values: dict[Measure, deque[float]] = {
            measure: deque(maxlen=_WINDOWS) for measure in Measure
        }
        self._last_report: tuple[float, int] | None = None
        self._ended: float | None = None

    def add_interval(self, progress: Progress, use: int | None, *, now: float) -> bool:
        """Record the job's progress and use, and return whether a window has ended.

        `use`: the CPU use of its pods, in millicores. `now`: monotonic seconds.
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
        """Forget the values of all windows, after a change that makes them useless."""
        for values in self._values.values():
            values.clear()

    def values_of(self, measure: Measure) -> tuple[float, ...]:
        """Return the kept values of a measure, the newest last."""
        return tuple(self._values[measure])

    def _rate(self, progress: Progress) -> float | None:
        """Return the steps a second since the end of the last window; None means unknown.

        The reported rate covers the last minutes, so it would show a change late.
        """
        before, self._last_report = self._last_report, None
        if progress.step is None or progress.at is None:
            return None
        self._last_report = at, step = progress.at, progress.step
        if before is None or at <= before[0] or step < before[1]:
            return None
        return (step - before[1]) / (at - before[0])


_MIN_SECONDS = 10.0
"""The shortest time over which the CPU time of a step is measured."""
_KEPT = 16
"""The numbers of reported steps and of CPU measurements that are kept to pair them by time."""


class Work:
    """Measures the mean CPU time of a step, over all steps since the first known use and step.

    It begins again if the step number decreases. A measurement of CPU arrives some seconds late, so
    it is paired with the step at its own time. The newest measurement that is no later than the
    last step counts, as delays differ by node.
    """

    def __init__(self) -> None:
        self._cpu = 0.0
        self._measured: dict[str, float] = {}
        self._used: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._steps: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._first: tuple[float, float, float] | None = None
        self._per_step = math.inf
        self._assumed = False

    def measure(self, pod: str, use: CpuUse, *, assumed: bool = False) -> None:
        """Record a new measurement of a pod, by uid.

        `assumed`: whether the use is an assumption, which the first measurement replaces.
        """
        if self._assumed and not assumed:
            self._measured.clear()
            self._used.clear()
            self._first = None
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
            self._first = None
        if not self._steps and progress.rate:
            # The rate covers the time before the first report, so an earlier step follows from it.
            seconds = min(_MIN_SECONDS, progress.step / progress.rate)
            self._steps.append((progress.at - seconds, progress.step - seconds * progress.rate))
        if not self._steps or progress.at > self._steps[-1][0]:
            self._steps.append((progress.at, progress.step))
        newest = next(self._pairs(reversed(self._used)), None)
        self._first = self._first or next(self._pairs(self._used), None)
        if newest is None or self._first is None:
            return
        (at, step, cpu), (first_at, first_step, first_cpu) = newest, self._first
        if step > first_step and at - first_at >= _MIN_SECONDS:
            self._per_step = (cpu - first_cpu) / (step - first_step)

    def remaining(self, progress: Progress) -> float | None:
        """Return the core-seconds to the end of the job; infinity means unknown.

        Return None for a job that does not report its total number of steps.
        """
        if progress.total is None or progress.step is None:
            return None
        steps = max(0, progress.total - progress.step)
        return steps * self._per_step if steps else 0.0

    def completed(self, progress: Progress) -> float:
        """Return the core-seconds of the job's completed steps; 0 means unknown.

        They are at least its measured use, because its steps may begin at 1 again in each epoch.
        """
        steps = progress.step or 0
        return max(self._cpu, steps * self._per_step) if self._per_step < math.inf else 0.0

    def _pairs(
        self, measurements: Iterable[tuple[float, float]]
    ) -> Iterator[tuple[float, float, float]]:
        """Yield the time, the step and the CPU time so far of measurements with a known step."""
        for time, cpu in measurements:
            step = self._step_at(time)
            if step is not None:
                yield time, step, cpu

    def _step_at(self, at: float) -> float | None:
        """Return the interpolated step at a time, or None without reports before and after it."""
        for (earlier, before), (later, after) in pairwise(self._steps):
            if earlier <= at <= later:
                return before + (after - before) * (at - earlier) / (later - earlier)
        return None
