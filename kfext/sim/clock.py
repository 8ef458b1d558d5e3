"""The time of a model cluster: which deed is done at which second."""

import heapq
import math
from collections.abc import Callable

Deed = Callable[[], object]

EPOCH = 1_000_000.0
"""The wall clock at second 0, in seconds since the epoch; the monotonic clock differs."""


class Clock:
    """Whole seconds since the beginning; deeds of one second run in the order of their scheduling.

    Seconds without a deed are jumped over.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._deeds: list[tuple[float, int, Deed]] = []
        self._count = 0

    @property
    def wall(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + self.now

    def after(self, seconds: float, deed: Deed) -> None:
        """Schedule a deed for the first whole second that is at least `seconds` later."""
        self._count += 1
        heapq.heappush(self._deeds, (math.ceil(self.now + seconds), self._count, deed))

    def next(self) -> float:
        """Return the second of the next deed; infinity without deeds."""
        return self._deeds[0][0] if self._deeds else math.inf

    def run_due(self) -> bool:
        """Run all deeds that are due; return whether there was any."""
        any_done = False
        while self._deeds and self._deeds[0][0] <= self.now:
            heapq.heappop(self._deeds)[2]()
            any_done = True
        return any_done
