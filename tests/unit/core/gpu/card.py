"""A card in virtual time: while two jobs have work on it, each is served half of the time."""

import random
from dataclasses import dataclass, field

from kfext.core.gpu.loss import LossMeter, Reading
from kfext.core.gpu.pair import Gate, Pair, Ruling

_TICK = 0.0005
_RULES = 0.05
"""Seconds between two moments, and between two rulings."""


@dataclass(slots=True)
class Card:
    """A job of high priority whose steps need the card for `busy` of `period` s, and one of low.

    A step's work comes in one piece, and the pauses differ. `looks`: whether low's gate looks at
    the beacon; it is shut at the agent's word in any case.
    """

    meter: LossMeter
    pair: Pair
    busy: float
    period: float = 0.1
    looks: bool = True
    now: float = 0.0
    steps: int = 0
    stepped: float = 0.0
    served: float = 0.0
    intrusions: int = 0
    begun_while_busy: int = 0
    latencies: list[float] = field(default_factory=list)
    ruling: Ruling | None = None
    _high: float = 0.0
    _next: float = 0.0
    _low: float = 0.0
    _intruding: bool = False
    _intruded: float = 0.0
    _rules_at: float = 0.0
    _chance: random.Random = field(default_factory=lambda: random.Random(1))

    def run(self, seconds: float) -> None:
        """Go on for so many seconds."""
        until = self.now + seconds
        while self.now < until:
            self._rule()
            self._high_goes_on()
            if self._low <= 0:
                self._begin()
            self._serve()
            self.now += _TICK

    def _rule(self) -> None:
        if self.now < self._rules_at:
            return
        self._rules_at += _RULES
        self.meter.note(Reading(self.now, self.steps, self.stepped))
        self.ruling = self.pair.rule(worked=self.served, now=self.now)

    def _high_goes_on(self) -> None:
        if self._high <= 0 and self.now >= self._next:
            self._high = self.busy * self.period
            self._next = float("inf")
            if self._low > 0 and not self._intruding:
                self.latencies.append(self._low)

    def _begin(self) -> None:
        assert self.ruling is not None
        ruling, busy = self.ruling, self._high > 0
        self._intruding = False
        if ruling.gate is not Gate.GATED:
            return
        if busy and self.looks:
            if self._intruded >= ruling.allowance:
                return
            self._intruding = True
            self._intruded += ruling.micro_step
        self.begun_while_busy += busy and not self._intruding
        self._low = ruling.micro_step

    def _serve(self) -> None:
        both = self._high > 0 and self._low > 0
        part = _TICK / 2 if both else _TICK
        if self._low > 0:
            self._low -= part
            self.served += part
        if self._high > 0:
            self._high -= part
            if self._high <= 0:
                self.steps += 1
                self.stepped = self.now
                pause = (1 - self.busy) * self.period * self._chance.uniform(0.7, 1.3)
                self._next = self.now + pause
