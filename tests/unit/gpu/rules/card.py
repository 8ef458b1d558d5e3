"""A card in virtual time: while two jobs have work on it, each is served half of the time."""

import random
from dataclasses import dataclass, field

from kfext.gpu.rules.measures import Reading, Throughput
from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP, Effects, Neighbours, Ruling

_TICK = 0.0005
_RULES = 0.05
"""Seconds between two moments, and between two rulings."""
_LOW_STEP = 0.1
"""Seconds of the card for a step of the job of low priority."""
_FREE = Ruling(shut=False, micro_step=LONGEST_MICRO_STEP)


@dataclass(slots=True)
class Card:
    """A job of high priority with steps that need the card for `busy` of `period` s, and a low job.

    A step's work comes in one piece, and the pauses differ; low has one micro-step on the card at a
    time. `looks`: whether low's gate looks at the beacon; it is shut at the agent's word in any
    case, unless there is none (`gated`). `wants`: whether low has work; `comes`: when the job of
    high priority does; `efficiency`: what is left of the card while both use it; `coarse`:
    seconds that each micro-step takes at least.
    """

    neighbours: Neighbours
    busy: float
    minimum: float = 0.2
    period: float = 0.1
    looks: bool = True
    gated: bool = True
    wants: bool = True
    comes: float = 0.0
    efficiency: float = 1.0
    coarse: float = 0.0
    now: float = 0.0
    steps: int = 0
    stepped: float = 0.0
    served: float = 0.0
    begun_while_busy: int = 0
    intruded: float = 0.0
    latencies: list[float] = field(default_factory=list)
    ruling: Ruling = _FREE
    throughput: Throughput = field(default_factory=Throughput)
    _high: float = 0.0
    _next: float = 0.0
    _low: float = 0.0
    _low_steps: int = 0
    _low_stepped: float = 0.0
    _intruding: bool = False
    _allowed: float = 0.0
    _waits: bool = False
    _seen: tuple[float, float] = (0.0, 0.0)
    _rules_at: float = 0.0
    _chance: random.Random = field(default_factory=lambda: random.Random(1))

    def run(self, seconds: float) -> None:
        """Go on for so many seconds."""
        until = self.now + seconds
        while self.now < until:
            self._rule()
            if self.now >= self.comes:
                self._high_goes_on()
            if self._low <= 0 and self.wants:
                self._begin()
            self._serve()
            self.now += _TICK

    @property
    def _micro_step(self) -> float:
        return max(self.ruling.micro_step, self.coarse)

    def _rule(self) -> None:
        if self.now < self._rules_at:
            return
        self._rules_at += _RULES
        if self.ruling.shut:
            self.throughput.restart()
        else:
            low = Reading(self.now, self._low_steps, self._low_stepped)
            self.throughput.note(low, alone=self.now < self.comes)
        if self.now < self.comes:
            return
        worked, intruded = self._seen
        self._seen = (self.served, self.intruded)
        seen = Effects(
            self.minimum,
            self.served - worked,
            self.intruded - intruded,
            self._waits,
            self.throughput.normalised,
            gives_way=self.gated,
            works=self._low > 0,
        )
        self._waits = False
        self.neighbours.meter.note(Reading(self.now, self.steps, self.stepped))
        self.ruling = self.neighbours.rule({"low": seen}, now=self.now)["low"]
        self._allowed = self.intruded + self.ruling.allowance

    def _high_goes_on(self) -> None:
        if self._high <= 0 and self.now >= self._next:
            self._high = self.busy * self.period
            self._next = float("inf")
            if self._low > 0 and not self._intruding:
                self.latencies.append(self._low)

    def _begin(self) -> None:
        ruling, busy = self.ruling, self._high > 0
        self._intruding = False
        self._waits = True
        if ruling.shut and self.gated:
            return
        if busy and self.looks:
            if self.intruded >= self._allowed:
                return
            self._intruding = True
            self.intruded += self._micro_step
        self._waits = False
        self.begun_while_busy += busy and not self._intruding
        self._low += self._micro_step

    def _serve(self) -> None:
        both = self._high > 0 and self._low > 0
        part = _TICK / 2 * self.efficiency if both else _TICK
        if self._low > 0:
            self._low -= part
            self.served += part
            if self.served >= (self._low_steps + 1) * _LOW_STEP:
                self._low_steps, self._low_stepped = self._low_steps + 1, self.now
        if self._high > 0:
            self._high -= part
            if self._high <= 0:
                self.steps += 1
                self.stepped = self.now
                pause = (1 - self.busy) * self.period * self._chance.uniform(0.7, 1.3)
                self._next = self.now + pause
