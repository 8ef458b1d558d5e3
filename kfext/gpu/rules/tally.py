"""Seconds that sharers of a card have worked or waited: since the last look, and lately."""

from collections import deque

WINDOW = 10.0
"""Shares hold over this many seconds: a sharer may be ahead or behind for a shorter time."""


class Tally:
    """How much a counter of seconds has grown, never by more than the time that has passed.

    The user's code writes the counter, so any number may be in it. `count`: its value at `now`.
    Work is counted at its end and may have begun long before, so time in which the counter stood
    still can be claimed later.
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
