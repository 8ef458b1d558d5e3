"""The clock of a simulated cluster, and its scheduled actions."""

import heapq
import math
from collections.abc import Callable

Action = Callable[[], object]

EPOCH = 1_000_000.0
"""The wall clock at second 0, in seconds since the epoch; the monotonic clock differs."""


class Clock:
    """Counts whole seconds; the actions of a second run in the order in which they were scheduled.

    `now`: the seconds since the start. The simulation skips seconds without an action.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._actions: list[tuple[float, int, Action]] = []
        self._count = 0

    @property
    def wall(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + self.now

    def after(self, seconds: float, action: Action) -> None:
        """Schedule an action for the first whole second that is at least `seconds` later."""
        self._count += 1
        heapq.heappush(self._actions, (math.ceil(self.now + seconds), self._count, action))

    def next(self) -> float:
        """Return the second of the next action; infinity if there is none."""
        return self._actions[0][0] if self._actions else math.inf

    def run_due(self) -> bool:
        """Run all actions that are due; return whether there was any."""
        any_done = False
        while self._actions and self._actions[0][0] <= self.now:
            heapq.heappop(self._actions)[2]()
            any_done = True
        return any_done
