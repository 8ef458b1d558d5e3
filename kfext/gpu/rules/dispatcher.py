"""Gives the turns of a card by the activity of its sharers."""

from collections.abc import Mapping
from dataclasses import dataclass

from kfext.gpu.rules.turns import TURN, Turns

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

    While no sharer wants a turn, the first to come may work at once.
    """

    def __init__(self) -> None:
        self.turns = Turns()
        self.holder: str | None = None
        self._idle = True
        self._began = 0.0
        self._looked = 0.0
        self._used = False

    def look(self, sharers: Mapping[str, Activity], *, now: float) -> float:
        """Charge what was used, and give the next turn; return in how many seconds to call again.

        Return infinity if only a sharer's activity can change anything.
        """
        for name, seen in sharers.items():
            held = now - self._looked if name == self.holder else 0.0
            self.turns.ran(name, held=held, used=seen.used, now=now)
        self._looked = now
        wanting = [name for name, seen in sharers.items() if seen.wants]
        self._idle = not wanting
        rest = self._left(sharers, now)
        if rest > 0:
            return rest
        self.holder = self.turns.next(wanting, now=now)
        if self.holder is None:
            return self.turns.wakes(wanting, now=now)
        self._began, self._used = now, False
        return UNUSED

    def may_work(self, name: str, *, now: float) -> bool:
        """Return whether a sharer may begin a micro-step."""
        return name == self.holder or (self._idle and self.turns.allows(name, now=now))

    def _left(self, sharers: Mapping[str, Activity], now: float) -> float:
        """Return the seconds left of the turn."""
        if self.holder is None or self.holder not in sharers:
            return 0.0
        self._used = self._used or sharers[self.holder].begun
        rest = (TURN if self._used else UNUSED) - (now - self._began)
        if rest <= 0 and not self._used:
            self.turns.forfeit(self.holder, TURN - UNUSED)
        return rest
