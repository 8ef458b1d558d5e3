"""A simulated card: while two jobs have work on it, each of them gets half of the time."""

import random
from dataclasses import dataclass, field

from kfext.gpu.rules.measures import Reading, Throughput
from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP, Effects, Neighbours, Ruling

_TICK, _RULING_INTERVAL = 0.0005, 0.05
"""Seconds between two simulated moments, and between two rulings."""
_LOW_STEP = 0.1
"""Seconds on the card for a step of the low-priority job."""
_FREE = Ruling(shut=False, micro_step=LONGEST_MICRO_STEP)


@dataclass(slots=True)
class Card:
    """A high-priority job (high) and a low-priority job (low) on one card. Times are in seconds.

    Each step of high takes `period`, and needs the card for the fraction `busy` of it, in one
    piece; the pauses vary. Low has one micro-step on the card at a time. `reads_beacon`: whether
    low gives way while high is busy. `gated`: whether low stops at the agent's order. `wants`:
    whether low has work. `high_from`: the time at which high begins. `efficiency`: the fraction of
    the card's speed that is left while both use it. `least_micro_step`: the shortest micro-step.
    """

    neighbours: Neighbours
    busy: float
    minimum: float = 0.2
    period: float = 0.1
    reads_beacon: bool = True
    gated: bool = True
    wants: bool = True
    high_from: float = 0.0
    efficiency: float = 1.0
    least_micro_step: float = 0.0
    now: float = 0.0
    steps: int = 0
    stepped: float = 0.0
    served: float = 0.0
    begun_while_busy: int = 0
    intruded: float = 0.0
    latencies: list[float] = field(default_factory=list)
    ruling: Ruling = _FREE
    throughput: Throughput = field(default_factory=Throughput)
    _high_left: float = 0.0
    _next_high: float = 0.0
    _low_left: float = 0.0
    _low_steps: int = 0
    _low_stepped: float = 0.0
    _intruding: bool = False
    _allowed: float = 0.0
    _waits: bool = False
    _reported: tuple[float, float] = (0.0, 0.0)
    _next_ruling: float = 0.0
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    def run(self, seconds: float) -> None:
        """Simulate some more seconds."""
        until = self.now + seconds
        while self.now < until:
            self._rule()
            if self.now >= self.high_from:
                self._run_high()
            if self._low_left <= 0 and self.wants:
                self._begin_micro_step()
            self._serve()
            self.now += _TICK

    @property
    def _micro_step(self) -> float:
        return max(self.ruling.micro_step, self.least_micro_step)

    def _rule(self) -> None:
        if self.now < self._next_ruling:
            return
        self._next_ruling += _RULING_INTERVAL
        if self.ruling.shut:
            self.throughput.restart()
        else:
            low = Reading(self.now, self._low_steps, self._low_stepped)
            self.throughput.record(low, alone=self.now < self.high_from)
        if self.now < self.high_from:
            return
        worked, intruded = self._reported
        self._reported = (self.served, self.intruded)
        effects = Effects(
            self.minimum,
            self.served - worked,
            self.intruded - intruded,
            self._waits,
            self.throughput.normalised,
            gives_way=self.gated,
            may_work=self._low_left > 0,
        )
        self._waits = False
        self.neighbours.meter.record(Reading(self.now, self.steps, self.stepped))
        self.ruling = self.neighbours.rule({"low": effects}, now=self.now)["low"]
        self._allowed = self.intruded + self.ruling.allowance

    def _run_high(self) -> None:
        if self._high_left <= 0 and self.now >= self._next_high:
            self._high_left = self.busy * self.period
            self._next_high = float("inf")
            if self._low_left > 0 and not self._intruding:
                self.latencies.append(self._low_left)

    def _begin_micro_step(self) -> None:
        ruling, busy = self.ruling, self._high_left > 0
        self._intruding = False
        self._waits = True
        if ruling.shut and self.gated:
            return
        if busy and self.reads_beacon:
            if self.intruded >= self._allowed:
                return
            self._intruding = True
            self.intruded += self._micro_step
        self._waits = False
        self.begun_while_busy += busy and not self._intruding
        self._low_left += self._micro_step

    def _serve(self) -> None:
        both = self._high_left > 0 and self._low_left > 0
        served = _TICK / 2 * self.efficiency if both else _TICK
        if self._low_left > 0:
            self._low_left -= served
            self.served += served
            if self.served >= (self._low_steps + 1) * _LOW_STEP:
                self._low_steps, self._low_stepped = self._low_steps + 1, self.now
        if self._high_left > 0:
            self._high_left -= served
            if self._high_left <= 0:
                self.steps += 1
                self.stepped = self.now
                pause = (1 - self.busy) * self.period * self._random.uniform(0.7, 1.3)
                self._next_high = self.now + pause
