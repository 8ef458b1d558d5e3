"""Gives the turns of a card, from what the sharers are seen to do."""

from collections.abc import Mapping
from dataclasses import dataclass

from kfext.gpu.rules.turns import TURN, Turns

UNUSED = TURN / 2
"""Seconds after which a turn ends in which no micro-step has begun. It costs a whole one."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Of a sharer since the last look. `wants`: it waits at its gate, or has passed it.

    `begun`: it has passed its gate; `used`: seconds on the card, of micro-steps that have ended.
    """

    wants: bool
    begun: bool
    used: float


class Dispatcher:
    """Has one sharer at a time work. `turns` knows the sharers; `holder` has the turn.

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
        """Charge what was used, and give the next turn; return in how many seconds to look again.

        Infinity if only that which the sharers do can change anything.
        """
        for name, seen in sharers.items():
            held = now - self._looked if name == self.holder else 0.0
            self.turns.ran(name, held=held, used=seen.used, now=now)
        self._looked = now
        wanting = [name for name, seen in sharers.items() if seen.wants]
        self._idle = not wanting
        left = self._left(sharers, now)
        if left > 0:
            return left
        self.holder = self.turns.next(wanting, now=now)
        if self.holder is None:
            return self.turns.wakes(wanting, now=now)
        self._began, self._used = now, False
        return UNUSED

    def may_work(self, name: str, *, now: float) -> bool:
        """Return whether a sharer may begin a micro-step."""
        return name == self.holder or (self._idle and self.turns.allows(name, now=now))

    def _left(self, sharers: Mapping[str, Activity], now: float) -> float:
        """Return how much is left of the turn."""
        if self.holder is None or self.holder not in sharers:
            return 0.0
        self._used = self._used or sharers[self.holder].begun
        left = (TURN if self._used else UNUSED) - (now - self._began)
        if left <= 0 and not self._used:
            self.turns.forfeit(self.holder, TURN - UNUSED)
        return left
