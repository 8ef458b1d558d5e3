"""Follows a job's training by the lines of its log: its step, its rate and its growth.

The progress P of an interval is the improvement of the metric as a fraction of the first window's
mean; it is 0 if the improvement may be chance. The growth efficiency G is P divided by the share of
the node's CPU that the job used. A job is on the list New while G is at least a small fraction of
its best G so far. Below that, it moves to Watching and then to Completing, one list per interval.

Source: Zheng et al., FlowCon, ICPP 2019. FlowCon uses the absolute change per second, as a fraction
of the largest value. Here the threshold depends neither on the interval nor on the metric.

The code stores only counts and sums for short slots of time, so a job that prints a million lines
costs no more than a job that prints ten.
"""

import math
from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

from kfext.core.progress.lines import Line
from kfext.core.progress.position import MOST, Position
from kfext.core.progress.reported import GrowthState, Progress
from kfext.core.progress.step_count import Step, Steps
from kfext.core.progress.vocabulary import WHOLE, Better, better, is_eval, order

SLOTS = 10
"""The number of slots of a window."""
_MAX_SLOTS = 3 * SLOTS
_LARGEST_VALUE = 1e30


@dataclass(slots=True)
class _Slot:
    """The values of a time slot: count, mean, and sum of squared deviations from the mean."""

    index: int
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        change = value - self.mean
        self.mean += change / self.count
        self.squares += change * (value - self.mean)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a window and its standard error, over `count` values."""

    value: float
    error: float
    count: int


class Windows:
    """The values of a metric in windows of time. Times are in epoch seconds.

    `seconds`: the length of a window in seconds.
    `first`: the mean of the first window with values, or None before the first value.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.first: float | None = None
        self._began: float | None = None
        self._slots: deque[_Slot] = deque(maxlen=_MAX_SLOTS)

    def add(self, at: float, value: float) -> None:
        """Add a value, in order of time. NaN and extremely large values are ignored."""
        if not math.isfinite(value) or abs(value) > _LARGEST_VALUE:
            return
        if self._began is None:
            self._began = at
        index = math.floor(at * SLOTS / self.seconds)
        if not self._slots or index > self._slots[-1].index:
            self._slots.append(_Slot(index))
        self._slots[-1].add(value)
        if at < self._began + self.seconds:
            self.first = self._mean_of(list(self._slots)).value

    def forget(self) -> None:
        """Drop all values but the mean of the first window, because a clock went back."""
        self._slots.clear()
        self._began = None if self.first is None else -math.inf

    def mean(self, until: float) -> Mean | None:
        """Return the mean of the window that ends at `until`, or None without a value."""
        end = math.floor(until * SLOTS / self.seconds)
        slots = [slot for slot in self._slots if end - SLOTS < slot.index <= end]
        return self._mean_of(slots) if slots else None

    @staticmethod
    def _mean_of(slots: list[_Slot]) -> Mean:
        count = sum(slot.count for slot in slots)
        mean = sum(slot.count * slot.mean for slot in slots) / count
        squares = sum(slot.squares + slot.count * (slot.mean - mean) ** 2 for slot in slots)
        variance = squares / (count - 1) if count > 1 else 0.0
        return Mean(mean, math.sqrt(variance / count), count)


_MIN_VALUES = 2
"""With fewer values in a window, improvement cannot be told from chance."""
_CERTAIN = 2.0
"""The number of standard errors that the improvement between two windows must exceed."""


def progress_of(windows: Windows, better: Better, *, now: float) -> float | None:
    """Return the progress P of the last window since the window before it, from 0 to 1.

    P is the improvement as a fraction of the first window's mean; 0 if it may be chance. The result
    is None for too few values in a window, so that silence does not count as no progress.
    """
    last, before = windows.mean(now), windows.mean(now - windows.seconds)
    if last is None or before is None or not windows.first:
        return None
    if min(last.count, before.count) < _MIN_VALUES:
        return None
    match better:
        case Better.LOWER:
            gain = before.value - last.value
        case Better.HIGHER:
            gain = last.value - before.value
        case _:
            assert_never(better)
    if gain <= _CERTAIN * math.hypot(last.error, before.error):
        return 0.0
    return min(1.0, gain / abs(windows.first))


ALPHA = 0.03
"""A job stops growing when G is below this fraction of its best G so far."""
_MIN_SHARE = 0.05
"""The least share of CPU that counts, so that a starved job does not seem efficient."""
_WHOLE_NODE = 1.0
_NEXT = {
    GrowthState.NEW: GrowthState.WATCHING,
    GrowthState.WATCHING: GrowthState.COMPLETING,
    GrowthState.COMPLETING: GrowthState.COMPLETING,
}


def growth_efficiency(progress: float, share: float) -> float:
    """Return G from the progress P in an interval and the share of the node's CPU, both 0 to 1."""
    return progress / max(share, _MIN_SHARE)


class GrowthList:
    """The growth of one job. The job grows while G is at least `alpha` times its best G so far.

    `state`: the list that the job is on.
    `growth`: its last G, or None before the first.
    """

    def __init__(self, alpha: float = ALPHA) -> None:
        self.state = GrowthState.NEW
        self.growth: float | None = None
        self._alpha = alpha
        self._best = 0.0
        self._share = _WHOLE_NODE

    def add_interval(self, progress: float | None, share: float | None) -> None:
        """Add an interval: its progress, and the share of the node's CPU that the job used.

        While the share is unknown, the last known share counts. An interval with unknown progress
        changes nothing else: silence, NaN and a restart do not end the growth.
        """
        if share is not None and math.isfinite(share):
            self._share = share
        if progress is None or not math.isfinite(progress):
            return
        self.growth = growth_efficiency(progress, self._share)
        self._best = max(self._best, self.growth)
        grows = self.growth > 0 and self.growth >= self._alpha * self._best
        self.state = GrowthState.NEW if grows else _NEXT[self.state]


_PACES = 64
"""The most pairs of time and step for the rate of a job."""
_RECENT, _VALUES = 40, 3
"""The lines that show how often a measure is printed; the number of different values after which a
guessed measure is taken for a measure."""
_RARE = {False: 10, True: 4}
"""A measure on so many times fewer lines than the most frequent measure does not show the training.
The key: whether it is an accuracy."""
_MIN_STEPS = 50
"""A training has at least so many steps; an installation, which also prints steps, has fewer."""
_DISORDER = 0.1
"""Two threads may print out of order by so many seconds, although no clock went back."""


class Course:
    """Follows the training of one job.

    `interval`: the length of the compared windows, in seconds.
    `metric`: the name of the followed measure, empty before the first measure.
    `at`: the time of the last measure in epoch seconds, or None before the first.
    `diverged_since`: the epoch time since which all values are NaN or infinite, or None.
    """

    def __init__(self, interval: float) -> None:
        self.diverged_since: float | None = None
        self.windows = Windows(interval)
        self.metric = ""
        self._value: float | None = None  # the last value of the metric
        self._rank: int | None = None  # the lowest rank that printed
        self.at: float | None = None
        self._reported: float | None = None  # the time of the last value
        self._recent: deque[tuple[str, float]] = deque(maxlen=_RECENT)  # a measure of each line
        self._steps = Steps()
        self._others = Steps()  # of lines without a followed measure
        self._pace: deque[tuple[float, int]] = deque(maxlen=_PACES)  # times and steps
        self._rate_from = -math.inf  # earlier pairs do not count

    @property
    def restarts(self) -> int:
        """The number of times that the steps went back, such as after a restart."""
        return self._steps.restarts

    @property
    def step(self) -> int | None:
        """The last step, or None before the first."""
        return self._last.number if self._last else None

    @property
    def counted_step(self) -> int | None:
        """The last step; None means that at most an epoch or a fold is known."""
        return None if self._last and self._last.coarse else self.step

    @property
    def _last(self) -> Step | None:
        """The last step in lines with measures, or else in other lines that name a step."""
        return self._steps.last if self.metric or not self._others.moved else self._others.last

    @property
    def better(self) -> Better | None:
        """The direction in which the metric improves, or None before the first metric."""
        return better(self.metric) if self.metric else None

    def read_line(self, line: Line, *, at: float, now: float) -> None:
        """Read a line, in the order printed. `at`: its time; `now`: the time of the reader.

        Clocks jump, so a line is never newer than the reader, nor older than the previous line
        unless a clock went back by more than an interval.
        """
        if line.rank is not None:
            if self._rank is not None and line.rank > self._rank:
                return  # if several ranks print, the lowest rank counts
            self._rank = line.rank
        if line.evaluation:
            self._steps.evaluating = True
        values = dict(line.measures)
        name = min(values, key=order, default="")
        if name:
            self._recent.append((name, values[name]))
        if not name or (line.guessed and self.metric not in values and not self._varies(name)):
            if line.position.known:
                self._steps.add_position(line.position)
            if not self.metric and _names_a_step(line.position):
                self._others.step_at(line.position)
            return
        stated = min(at, now)
        self.at = at = self._in_order(stated, now)
        shows_more = not self.metric or self._order(name) < self._order(self.metric)
        if shows_more and not (self.metric and self._steps.evaluating):
            self._follow(name)
        if self.metric not in values:
            # An evaluation counts its own steps.
            evaluation = is_eval(name) or self._steps.evaluating
            self._steps.add_position(line.position, evaluation=evaluation)
            self._steps.read_summary(line.position)
            return
        self._go_to(line.position, at, evaluation=is_eval(self.metric), timely=at == stated)
        self._steps.read_summary(line.position)
        # The line is about something else, such as an evaluation, so its value does not count.
        if self._steps.unrelated:
            return
        self._reported = at
        self._record_value(at, values[self.metric])

    def advance(self, position: Position, *, at: float, now: float) -> None:
        """Read a step without a new measure; for the times see `read_line`."""
        stated = min(at, now)
        self.at = at = self._in_order(stated, now)
        self._go_to(position, at, timely=at == stated)

    def progress(self) -> Progress:
        """Return the progress so far."""
        step = self._last
        rate = self._rate() if step else None
        remaining = None
        if rate and step and step.total is not None:
            remaining = min(max(0, step.total - step.number) / rate, MOST)
        return Progress(
            metric=self.metric,
            value=self._value,
            step=self.step,
            total=step.total if step else None,
            rate=rate,
            remaining=remaining,
            at=self._reported,
        )

    def restart_rate(self, at: float) -> None:
        """Compute the rate only from this time on, because the size of the job changed."""
        self._rate_from = at

    def resumed_at(self, *, since: float, after: float) -> float | None:
        """Return the end of the longest silence between steps, in epoch seconds, or None.

        A silence counts if it began at `since` or later and ended after `after`, in epoch seconds.
        """
        times = [since, *(at for at, _ in self._pace if at > since)]
        silences = [(end - begin, end) for begin, end in pairwise(times) if end > after]
        return max(silences, key=lambda silence: silence[0])[1] if silences else None

    def _go_to(
        self, position: Position, at: float, *, timely: bool, evaluation: bool = False
    ) -> None:
        """Go to the step of a line; `timely`: whether its time is reliable enough for the rate."""
        restarts, before = self._steps.restarts, self._steps.last
        step = self._steps.step_at(position, evaluation=evaluation)
        recounted = before and step and before.coarse != step.coarse
        if self._steps.restarts > restarts or recounted:
            self._pace.clear()
        if self._steps.restarts > restarts:
            self.diverged_since = None
        if step is not None and timely:
            self._record_pace(at, step.number)

    def _order(self, name: str) -> tuple[bool, tuple[int, int]]:
        """Return the sort key of a measure; a rare measure is last, unless it is a reward."""
        lines = Counter(name for name, _ in self._recent if not is_eval(name))
        rank = order(name)
        often = _RARE[rank[0] > WHOLE] * lines[name] >= max(lines.values(), default=0)
        return rank[0] > 0 and not often, rank

    def _varies(self, name: str) -> bool:
        """Return whether a measure has shown several numbers; NaN does not count."""
        values = {value for seen, value in self._recent if seen == name}
        return sum(not math.isnan(value) for value in values) >= _VALUES

    def _follow(self, name: str) -> None:
        """Follow a different measure; its lines may count different steps."""
        self.metric, self._value, self.diverged_since = name, None, None
        self.windows = Windows(self.windows.seconds)
        self._steps.count_anew()
        self._pace.clear()

    def _in_order(self, at: float, now: float) -> float:
        """Return the time of a line, but never a time before the previous line.

        If a clock went back, the duration of the steps is unknown, so the rate is computed anew. If
        it went back by more than an interval, the new time is accepted.
        """
        back = 0.0 if self.at is None else self.at - at
        if back > _DISORDER:
            self._pace.clear()
        if back > self.windows.seconds:
            self.windows.forget()
            back = 0.0
        return at if back <= 0 else min(at + back, now)

    def _record_value(self, at: float, value: float) -> None:
        if not math.isfinite(value):
            self._value = None
            self.diverged_since = at if self.diverged_since is None else self.diverged_since
            return
        self.diverged_since = None
        if abs(value) <= _LARGEST_VALUE:
            self._value = value
            self.windows.add(at, value)

    def _record_pace(self, at: float, step: int) -> None:
        """Add a pair; it replaces a last pair of the same time, or too close to its predecessor."""
        pace, apart = self._pace, self.windows.seconds / 10
        same = bool(pace) and pace[-1][0] == at
        if same or (len(pace) > 1 and pace[-1][0] - pace[-2][0] < apart):
            pace.pop()
        pace.append((at, step))

    def _rate(self) -> float | None:
        paces = [pace for pace in self._pace if pace[0] >= self._rate_from]
        if len(paces) < 2:
            return None
        (begin, first), (end, last) = paces[0], paces[-1]
        return (last - first) / (end - begin) if end > begin and last > first else None


def _names_a_step(position: Position) -> bool:
    """Return whether a line without a measure is surely of a training, not `Step 2/3: install`."""
    many = position.steps is None or position.steps >= _MIN_STEPS
    return not position.bar and (position.epoch is not None or (position.named and many))
