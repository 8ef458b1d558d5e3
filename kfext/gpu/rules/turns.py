"""Whose turn it is on a card, among sharers of one priority.

Earliest eligible virtual deadline first (I. Stoica and H. Abdel-Wahab, 1995), with the shares as
weights, and for each sharer a bucket of the time that it may use, which fills as time passes: a
sharer whose micro-steps are longer than its turns rests after them. In any window a sharer that
always has work gets at least its share less one `QUOTA`. What others leave goes to those that have
work, in proportion to their shares.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

QUOTA = 0.25
"""Seconds by which a sharer may be ahead or behind, in a window."""
TURN = QUOTA / 4
"""Seconds of one turn. The bounds are of several turns: one at each end of a window."""


@dataclass(slots=True)
class _Sharer:
    """`starts`: the virtual time from which the sharer may have its next turn.

    `tokens`: seconds that it may use at the time `filled`; `paid`: seconds that were charged before
    it used them.
    """

    share: float
    starts: float
    filled: float
    tokens: float = TURN
    paid: float = 0.0

    def fill(self, now: float, *, used: float = 0.0) -> None:
        """Take in that time has passed, in which it has used the card for so many seconds."""
        self.tokens = min(TURN, self.tokens + (now - self.filled) - used)
        self.filled = now


class Turns:
    """The turns of one card. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._sharers: dict[str, _Sharer] = {}
        self._virtual = 0.0
        self._able: frozenset[str] = frozenset()

    def set(self, name: str, *, share: float, now: float) -> None:
        """Add a sharer, or change its share; the shares of all are at most 1 together."""
        known = self._sharers.get(name)
        if known is None:
            self._sharers[name] = _Sharer(share, starts=self._virtual, filled=now)
        else:
            known.share = share

    def remove(self, name: str) -> None:
        """Forget a sharer."""
        self._sharers.pop(name, None)

    def next(self, wanting: Collection[str], *, now: float) -> str | None:
        """Return who has the next turn of those that want one, None if their buckets are empty."""
        able = {name: one for name in wanting if (one := self._sharers.get(name))}
        for one in able.values():
            one.fill(now)
        able = {name: one for name, one in able.items() if one.tokens > 0}
        for name in able.keys() - self._able:
            # It saves up nothing while it has no work.
            able[name].starts = max(able[name].starts, self._virtual)
        self._able = frozenset(able)
        if not able:
            return None
        self._virtual = max(self._virtual, min(one.starts for one in able.values()))
        due = [name for name, one in able.items() if one.starts <= self._virtual]
        return min(due, key=lambda name: (able[name].starts + TURN / able[name].share, name))

    def allows(self, name: str, *, now: float) -> bool:
        """Return whether the bucket of a sharer is not empty."""
        known = self._sharers.get(name)
        if known is None:
            return False
        known.fill(now)
        return known.tokens > 0

    def wakes(self, wanting: Collection[str], *, now: float) -> float:
        """Return in how many seconds the first bucket is not empty any more, infinity if never."""
        found = [one for name in wanting if (one := self._sharers.get(name))]
        waits = (max(-one.tokens - (now - one.filled), 0.0) for one in found)
        return min(waits, default=math.inf)

    def ran(self, name: str, *, held: float, used: float, now: float) -> None:
        """Charge a sharer for the seconds in which it had the turn, or used the card, if more.

        What it says to have used moves its own place alone: virtual time follows the turns, so that
        a sharer that lies, in whatever direction, takes nothing from the others. Use becomes known
        when a micro-step ends, and was paid for if that was within a turn.
        """
        served = self._sharers.get(name)
        if served is None:
            return
        served.fill(now, used=used)
        due = used - served.paid
        charged = max(held, due)
        served.paid = min(charged - due, TURN)
        served.starts += charged / served.share
        weights = sum(one.share for one in map(self._sharers.get, self._able) if one)
        self._virtual += held / max(weights, served.share)

    def forfeit(self, name: str, seconds: float) -> None:
        """Charge a sharer for the rest of a turn that was taken from it."""
        if served := self._sharers.get(name):
            served.starts += seconds / served.share
