"""The values of a metric by time: means of windows, and what a window has gained on the one before.

Kept are counts and sums of short slots of time, so that a job that prints a million lines costs no
more than one that prints ten.
"""

import math
from collections import deque
from dataclasses import dataclass

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
