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
"""Seconds of one turn. The bounds cover several turns, such as one at each end of a window."""


@dataclass(slots=True)
class _Sharer:
    """A sharer. `starts`: the virtual time of its next turn at the earliest.

    `tokens`: the seconds that it may use at the time `filled`. `paid`: seconds that were charged
    before it used them.
    """

    share: float
    starts: float
    filled: float
    tokens: float = TURN
    paid: float = 0.0

    def fill(self, now: float, *, used: float = 0.0) -> None:
        """Advance to `now`; the sharer has used the card for `used` seconds since the last call."""
        self.tokens = min(TURN, self.tokens + (now - self.filled) - used)
        self.filled = now


class Turns:
    """The turns of one card. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._sharers: dict[str, _Sharer] = {}
        self._virtual = 0.0
        self._able: frozenset[str] = frozenset()

    def set(self, name: str, *, share: float, now: float) -> None:
        """Add a sharer, or change its share; all shares together are at most 1."""
        sharer = self._sharers.get(name)
        if sharer is None:
            self._sharers[name] = _Sharer(share, starts=self._virtual, filled=now)
        else:
            sharer.share = share

    def remove(self, name: str) -> None:
        """Forget a sharer."""
        self._sharers.pop(name, None)

    def next(self, wanting: Collection[str], *, now: float) -> str | None:
        """Return the sharer with the next turn; None with empty buckets alone."""
        able = {name: sharer for name in wanting if (sharer := self._sharers.get(name))}
        for sharer in able.values():
            sharer.fill(now)
        able = {name: sharer for name, sharer in able.items() if sharer.tokens > 0}
        for name in able.keys() - self._able:
            # A sharer accumulates no claim while it has no work.
            able[name].starts = max(able[name].starts, self._virtual)
        self._able = frozenset(able)
        if not able:
            return None
        self._virtual = max(self._virtual, min(sharer.starts for sharer in able.values()))
        due = [name for name, sharer in able.items() if sharer.starts <= self._virtual]
        return min(due, key=lambda name: (able[name].starts + TURN / able[name].share, name))

    def allows(self, name: str, *, now: float) -> bool:
        """Return whether the bucket of a sharer is not empty."""
        sharer = self._sharers.get(name)
        if sharer is None:
            return False
        sharer.fill(now)
        return sharer.tokens > 0

    def wakes(self, wanting: Collection[str], *, now: float) -> float:
        """Return the seconds until the first bucket is no longer empty; infinity for never."""
        sharers = [sharer for name in wanting if (sharer := self._sharers.get(name))]
        waits = (max(-sharer.tokens - (now - sharer.filled), 0.0) for sharer in sharers)
        return min(waits, default=math.inf)

    def ran(self, name: str, *, held: float, used: float, now: float) -> None:
        """Charge a sharer for the seconds of its turn, or for its use of the card if that is more.

        The use that a sharer reports moves only its own place: virtual time follows the turns, so a
        sharer that lies costs the others nothing. Use becomes known at the end of a
        micro-step, and a turn has already paid for the use within it.
        """
        served = self._sharers.get(name)
        if served is None:
            return
        served.fill(now, used=used)
        due = used - served.paid
        charged = max(held, due)
        served.paid = min(charged - due, TURN)
        served.starts += charged / served.share
        weights = sum(sharer.share for sharer in map(self._sharers.get, self._able) if sharer)
        self._virtual += held / max(weights, served.share)

    def forfeit(self, name: str, seconds: float) -> None:
        """Charge a sharer for the remainder of a turn that was ended early."""
        if served := self._sharers.get(name):
            served.starts += seconds / served.share


UNUSED = TURN / 2
"""A turn without a micro-step ends after this many seconds. The sharer pays for a whole turn."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of a sharer since the last look. `wants`: it waits at its gate or has passed it.

    `begun`: it has passed its gate. `used`: seconds on the card, in micro-steps that have ended.
    """

    wants: bool
    begun: bool
    used: float


class Dispatcher:
    """Lets one sharer at a time work. `turns`: of all sharers. `holder`: the sharer with the turn.

    While no sharer wants a turn, the first that does may work at once.
    """

    def __init__(self) -> None:
        self.turns = Turns()
        self.holder: str | None = None
        self._idle = True
        self._began = 0.0
        self._looked = 0.0
        self._used = False

    def look(self, sharers: Mapping[str, Activity], *, now: float) -> float:
        """Charge the use, and assign the next turn; return the seconds until the next call.

        Return infinity if only a sharer's activity can change anything.
        """
        for name, activity in sharers.items():
            held = now - self._looked if name == self.holder else 0.0
            self.turns.ran(name, held=held, used=activity.used, now=now)
        self._looked = now
        wanting = [name for name, activity in sharers.items() if activity.wants]
        self._idle = not wanting
        remaining = self._remaining(sharers, now)
        if remaining > 0:
            return remaining
        self.holder = self.turns.next(wanting, now=now)
        if self.holder is None:
            return self.turns.wakes(wanting, now=now)
        self._began, self._used = now, False
        return UNUSED

    def may_work(self, name: str, *, now: float) -> bool:
        """Return whether a sharer may begin a micro-step."""
        return name == self.holder or (self._idle and self.turns.allows(name, now=now))

    def _remaining(self, sharers: Mapping[str, Activity], now: float) -> float:
        if self.holder is None or self.holder not in sharers:
            return 0.0
        self._used = self._used or sharers[self.holder].begun
        remaining = (TURN if self._used else UNUSED) - (now - self._began)
        if remaining <= 0 and not self._used:
            self.turns.forfeit(self.holder, TURN - UNUSED)
        return remaining
