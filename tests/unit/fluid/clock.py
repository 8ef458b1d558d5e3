"""The time of a model cluster: what happens at which second, in the order it was noted."""

import heapq
import math
from collections.abc import Callable

Deed = Callable[[], None]

EPOCH = 1_000_000.0
"""What the wall clock shows when the model begins; the monotonic clock shows something else."""


class Clock:
    """Whole seconds; those in which nothing can happen are jumped over."""

    def __init__(self) -> None:
        self.now = 0.0
        self._deeds: list[tuple[float, int, Deed]] = []
        self._count = 0

    @property
    def wall(self) -> float:
        return EPOCH + self.now

    def after(self, seconds: float, deed: Deed) -> None:
        """Have something done at the first whole second that is so much later."""
        self._count += 1
        heapq.heappush(self._deeds, (math.ceil(self.now + seconds), self._count, deed))

    def next(self) -> float:
        """Return the second of the next deed, or infinity."""
        return self._deeds[0][0] if self._deeds else math.inf

    def run_due(self) -> bool:
        """Do all that is due; return whether there was anything."""
        any_done = False
        while self._deeds and self._deeds[0][0] <= self.now:
            heapq.heappop(self._deeds)[2]()
            any_done = True
        return any_done
