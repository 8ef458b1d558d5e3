"""The order of turns on a card, among sharers of one priority.

The rule is earliest eligible virtual deadline first (I. Stoica and H. Abdel-Wahab, 1995), with the
shares as weights. Each sharer also has a bucket of time that it may use, which fills as time
passes: a sharer with micro-steps longer than its turns rests after them. In any window a sharer
that always has work receives at least its share less one `QUOTA`. Unused time is divided among the
sharers with work, in proportion to their shares.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

QUOTA = 0.25
"""Seconds that a sharer may be ahead or behind in a window."""
TURN = QUOTA / 4
"""Seconds of one turn; `QUOTA` must cover several turns, such as one at each end of a window."""


@dataclass(slots=True)
class _Sharer:
    """A sharer. `starts`: the earliest virtual time of its next turn.

    `tokens`: the seconds in its bucket at the time `filled_at`. `paid`: the seconds that it has
    paid for but not used yet.
    """

    share: float
    starts: float
    filled_at: float
    tokens: float = TURN
    paid: float = 0.0

    def fill(self, now: float, *, used: float = 0.0) -> None:
        """Advance to `now`; the sharer has used the card for `used` seconds since the last call."""
        self.tokens = min(TURN, self.tokens + (now - self.filled_at) - used)
        self.filled_at = now


class Turns:
    """The turns of one card. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._sharers: dict[str, _Sharer] = {}
        self._virtual = 0.0
        self._active: frozenset[str] = frozenset()

    def set(self, name: str, *, share: float, now: float) -> None:
        """Add a sharer, or change its share; all shares together are at most 1."""
        sharer = self._sharers.get(name)
        if sharer is None:
            self._sharers[name] = _Sharer(share, starts=self._virtual, filled_at=now)
        else:
            sharer.share = share

    def remove(self, name: str) -> None:
        """Forget a sharer."""
        self._sharers.pop(name, None)

    def next_holder(self, wanting: Collection[str], *, now: float) -> str | None:
        """Return the sharer that gets the next turn; None means that all buckets are empty."""
        active = {name: sharer for name in wanting if (sharer := self._sharers.get(name))}
        for sharer in active.values():
            sharer.fill(now)
        active = {name: sharer for name, sharer in active.items() if sharer.tokens > 0}
        for name in active.keys() - self._active:
            # A sharer accumulates no claim while it has no work.
            active[name].starts = max(active[name].starts, self._virtual)
        self._active = frozenset(active)
        if not active:
            return None
        self._virtual = max(self._virtual, min(sharer.starts for sharer in active.values()))
        due = [name for name, sharer in active.items() if sharer.starts <= self._virtual]
        return min(due, key=lambda name: (active[name].starts + TURN / active[name].share, name))

    def allows(self, name: str, *, now: float) -> bool:
        """Return whether the bucket of a sharer is not empty."""
        sharer = self._sharers.get(name)
        if sharer is None:
            return False
        sharer.fill(now)
        return sharer.tokens > 0

    def seconds_to_refill(self, wanting: Collection[str], *, now: float) -> float:
        """Return the seconds until the first bucket is no longer empty; infinity means never."""
        sharers = [sharer for name in wanting if (sharer := self._sharers.get(name))]
        waits = (max(-sharer.tokens - (now - sharer.filled_at), 0.0) for sharer in sharers)
        return min(waits, default=math.inf)

    def charge(self, name: str, *, held: float, used: float, now: float) -> None:
        """Charge a sharer for the seconds that it held a turn, or that it used the card if more.

        The use that a sharer reports moves only its own place: virtual time follows the turns, so a
        false report costs the others nothing. Use becomes known at the end of a micro-step; the
        turn has already paid for the use within it.
        """
        sharer = self._sharers.get(name)
        if sharer is None:
            return
        sharer.fill(now, used=used)
        due = used - sharer.paid
        charged = max(held, due)
        sharer.paid = min(charged - due, TURN)
        sharer.starts += charged / sharer.share
        weights = sum(other.share for other in map(self._sharers.get, self._active) if other)
        self._virtual += held / max(weights, sharer.share)

    def forfeit(self, name: str, seconds: float) -> None:
        """Charge a sharer for the remainder of a turn that was ended early."""
        if sharer := self._sharers.get(name):
            sharer.starts += seconds / sharer.share


UNUSED = TURN / 2
"""A turn without a micro-step ends after this many seconds. The sharer pays for a whole turn."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of a sharer since the last update.

    `wants`: whether it waits at its gate or has passed it. `begun`: whether it has passed it.
    `used`: the seconds on the card, in micro-steps that have ended.
    """

    wants: bool
    begun: bool
    used: float


class Dispatcher:
    """Gives turns to one sharer at a time. `holder`: the sharer with the turn, if any.

    While no sharer wants a turn, any sharer may begin to work at once.
    """

    def __init__(self) -> None:
        self.turns = Turns()
        self.holder: str | None = None
        self._idle = True
        self._turn_began = 0.0
        self._turn_used = False
        self._updated_at = 0.0

    def update(self, sharers: Mapping[str, Activity], *, now: float) -> float:
        """Charge the use, and assign the next turn; return the seconds until the next call.

        Return infinity if only a sharer's activity can change anything.
        """
        for name, activity in sharers.items():
            held = now - self._updated_at if name == self.holder else 0.0
            self.turns.charge(name, held=held, used=activity.used, now=now)
        self._updated_at = now
        wanting = [name for name, activity in sharers.items() if activity.wants]
        self._idle = not wanting
        remaining = self._remaining(sharers, now)
        if remaining > 0:
            return remaining
        self.holder = self.turns.next_holder(wanting, now=now)
        if self.holder is None:
            return self.turns.seconds_to_refill(wanting, now=now)
        self._turn_began, self._turn_used = now, False
        return UNUSED

    def may_work(self, name: str, *, now: float) -> bool:
        """Return whether a sharer may begin a micro-step."""
        return name == self.holder or (self._idle and self.turns.allows(name, now=now))

    def _remaining(self, sharers: Mapping[str, Activity], now: float) -> float:
        if self.holder is None or self.holder not in sharers:
            return 0.0
        self._turn_used = self._turn_used or sharers[self.holder].begun
        remaining = (TURN if self._turn_used else UNUSED) - (now - self._turn_began)
        if remaining <= 0 and not self._turn_used:
            self.turns.forfeit(self.holder, TURN - UNUSED)
        return remaining
