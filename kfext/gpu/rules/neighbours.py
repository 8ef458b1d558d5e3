"""What low-priority jobs on a card may do beside the high-priority job."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kfext.gpu.rules.ladder import Ladder
from kfext.gpu.rules.loss import LossMeter
from kfext.gpu.rules.pair import Pair
from kfext.gpu.rules.steps import Reading
from kfext.gpu.rules.tickets import Tickets
from kfext.model.shared_gpu import EVICTED_AFTER

LONGEST_MICRO_STEP = 0.005
_SHORTEST_MICRO_STEP = 0.001
OUTSTANDING = 2
"""Micro-steps that the gate of a low-priority job leaves on the card at a time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A low-priority job since the last look, in seconds. `minimum`: the time that it should have.

    `waits`: it waits at its gate. `normalised`: its speed beside others, as a part of its speed
    alone. `gives_way`: it is known to have a gate. `works`: it may have a micro-step on the card.
    """

    minimum: float
    worked: float
    intruded: float
    waits: bool
    normalised: float | None = None
    gives_way: bool = True
    works: bool = False


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a low-priority job may do until the next ruling. Times are in seconds.

    `shut`: its gate is shut. Otherwise it may pass while the high-priority job is idle, and intrude
    for `allowance` from now on. `ticket`: it may make one step in any case. `infeasible`: this does
    not give it its minimum. `strikes`: for losses. `evict`: it must leave the card. `times_shut`:
    how often losses shut its gate, in total.
    """

    shut: bool
    micro_step: float
    allowance: float = 0.0
    ticket: bool = False
    infeasible: bool = False
    strikes: int = 0
    evict: bool = False
    times_shut: int = 0


class Neighbours:
    """A high-priority job with a loss budget, and all low-priority jobs beside it.

    Call `note` with each reading of the high-priority job and then `rule`, several times a second.
    `longest_micro_step`: in seconds; a high-priority job with short steps may need shorter ones.
    """

    def __init__(
        self, *, budget: float, now: float, longest_micro_step: float = LONGEST_MICRO_STEP
    ) -> None:
        self.meter = LossMeter(budget=budget)
        self._longest = longest_micro_step
        self._ladder = Ladder(now)
        self._tickets = Tickets(budget=budget)
        self._pairs: dict[str, Pair] = {}
        self._shut: set[str] = set()

    def note(self, reading: Reading) -> None:
        """Record how far the high-priority job is."""
        self.meter.note(reading)

    def restart(self) -> None:
        """Restart the measurement, because the processes of the high-priority job have changed."""
        self.meter.restart()

    def remove(self, name: str) -> None:
        """Forget a low-priority job: another job may come under its name."""
        self._pairs.pop(name, None)
        self._ladder.remove(name)
        self._tickets.remove(name)
        self._shut.discard(name)

    def rule(self, lows: Mapping[str, Seen], *, now: float) -> dict[str, Ruling]:
        """Return what each low-priority job may do."""
        meter = self.meter
        meter.held_back = all(seen.gives_way for seen in lows.values())
        self._pairs = {
            name: self._pairs.get(name) or Pair(meter, minimum=seen.minimum, now=now)
            for name, seen in lows.items()
        }
        for name, seen in lows.items():
            self._pairs[name].note(
                worked=seen.worked,
                intruded=seen.intruded,
                waits=seen.waits,
                gated=name not in self._shut,
                now=now,
            )
            self._tickets.note(
                name, worked=seen.worked, intruded=seen.intruded, waits=seen.waits, now=now
            )
        shut = self._ladder.shut(
            losing=meter.over or self._tickets.over(now) or self._gains_nothing(lows),
            excess=meter.excess,
            windows=meter.windows,
            # A job that does not give way has an unknown use, so it is suspected first.
            worked={
                name: pair.share if lows[name].gives_way else math.inf
                for name, pair in self._pairs.items()
            },
            now=now,
        )
        if shut != self._shut:
            self._shut = shut
            meter.restart()  # the others have changed, so the measurements no longer hold
        rulings = {name: self._ruling(name, now) for name in lows}
        meter.disturbed = any(seen.works for seen in lows.values() if seen.gives_way)
        return rulings

    def _gains_nothing(self, lows: Mapping[str, Seen]) -> bool:
        """Return whether all jobs would end sooner one by one: the sum of speeds is below 1."""
        loss = self.meter.loss
        parts = [seen.normalised for name, seen in lows.items() if name not in self._shut]
        speeds = [part for part in parts if part is not None]
        if loss is None or not parts or len(speeds) < len(parts):
            return False
        return 1 - loss + sum(speeds) < 1

    def _ruling(self, name: str, now: float) -> Ruling:
        pair, rung = self._pairs[name], self._ladder.rungs[name]
        shut = name in self._shut
        return Ruling(
            shut or self.meter.holding,
            self._micro_step(),
            pair.allowance,
            ticket=self._tickets.due(name, now),
            infeasible=pair.infeasible,
            strikes=rung.strikes,
            evict=rung.strikes >= EVICTED_AFTER,
            times_shut=rung.times_shut,
        )

    def _micro_step(self) -> float:
        """Return how long a micro-step may be: each high-priority step may wait for two of them."""
        step = self.meter.step_seconds
        if step is None:
            return self._longest
        return min(self._longest, max(_SHORTEST_MICRO_STEP, self.meter.budget * step / OUTSTANDING))
