"""How much a job has gained in an interval, and FlowCon's list that it is on.

The progress P is FlowCon's with its defects mended: the signed improvement instead of its absolute
value, per interval instead of per second, relative to the first window instead of the largest
value seen, and 0 where it may be chance. The growth efficiency G is P for the share of the node's
CPU that was used. A job is on the list New while G is at least a small part of its best so far;
below it moves to Watching and then to Completing, one list in an interval.
Source: Zheng et al., FlowCon, ICPP 2019, with a threshold that is relative to the job, so that it
depends neither on the interval nor on the metric.

Of the values are kept counts and sums of short slots of time, so that a job that prints a million
lines costs no more than one that prints ten.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import assert_never

from kfext.core.progress.reported import GrowthState
from kfext.core.progress.vocabulary import Better

SLOTS = 10
"""Slots of one window."""
_KEPT = 3 * SLOTS
_LARGEST = 1e30


@dataclass(slots=True)
class _Slot:
    """The values of one slot: their number, mean, and sum of squared differences to it."""

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
    """The values of one metric. Windows have `seconds`; times are in epoch seconds.

    `first`: the mean of the first window that has values, None before there is one.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.first: float | None = None
        self._began: float | None = None
        self._slots: deque[_Slot] = deque(maxlen=_KEPT)

    def add(self, at: float, value: float) -> None:
        """Take in a value, in the order of time. One that is no number, or absurd, is left out."""
        if not math.isfinite(value) or abs(value) > _LARGEST:
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
        """Forget the times of all values, as those after them are by another clock.

        The first window stays: it is what later ones are a share of.
        """
        self._slots.clear()
        self._began = None if self.first is None else -math.inf

    def mean(self, until: float) -> Mean | None:
        """Return the mean of the window that ends at a time, None if it has no value."""
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


_FEWEST = 2
"""Values of a window without which nothing is known of chance."""
_CERTAIN = 2.0
"""Standard errors by which a window must be better than the one before."""


def progress_of(windows: Windows, better: Better, *, now: float) -> float | None:
    """Return the progress P of the last window against the one before it, from 0 to 1.

    It is the improvement as a share of the first window's mean, 0 if it may be chance. None if one
    of the windows has too few values to tell, so that silence is not taken for an end of progress.
    """
    last, before = windows.mean(now), windows.mean(now - windows.seconds)
    if last is None or before is None or not windows.first:
        return None
    if min(last.count, before.count) < _FEWEST:
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
"""The part of its best G so far below which a job does not grow."""
_LEAST_SHARE = 0.05
"""A share that counts at least, so that starving a job does not make it look efficient."""
_WHOLE_NODE = 1.0
_NEXT = {
    GrowthState.NEW: GrowthState.WATCHING,
    GrowthState.WATCHING: GrowthState.COMPLETING,
    GrowthState.COMPLETING: GrowthState.COMPLETING,
}


def growth_efficiency(progress: float, share: float) -> float:
    """Return G for the progress P of an interval and the share R of the node's CPU, both 0 to 1."""
    return progress / max(share, _LEAST_SHARE)


class GrowthList:
    """Follows one job. `alpha`: the part of its best G so far below which it does not grow.

    `state`: the list that it is on. `growth`: its last G, None before one was known.
    """

    def __init__(self, alpha: float = ALPHA) -> None:
        self.state = GrowthState.NEW
        self.growth: float | None = None
        self._alpha = alpha
        self._best = 0.0
        self._share = _WHOLE_NODE

    def take(self, progress: float | None, share: float | None) -> None:
        """Take in an interval: its progress, and the share of the node's CPU that the job used.

        The last known share holds while none is known. An interval whose progress is not known
        changes nothing else: silence, NaN and a restart are no end of growth.
        """
        if share is not None and math.isfinite(share):
            self._share = share
        if progress is None or not math.isfinite(progress):
            return
        self.growth = growth_efficiency(progress, self._share)
        self._best = max(self._best, self.growth)
        grows = self.growth > 0 and self.growth >= self._alpha * self._best
        self.state = GrowthState.NEW if grows else _NEXT[self.state]
