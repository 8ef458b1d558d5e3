"""The rules for low-priority jobs on a card beside the high-priority job."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kfext.gpu.hook.pauses import PIECE, PRICE
from kfext.gpu.rules.loss import LossMeter
from kfext.gpu.rules.measures import WINDOW, Recent
from kfext.gpu.rules.strikes import PATIENCE, Strikes
from kfext.model.shared_gpu import EVICTED_AFTER

_RISE = 0.02
"""The rise per second of the fraction of time in which low may intrude."""
_FALL = 0.5


class Pair:
    """The time that one low-priority job may work beside the high-priority job.

    Low works while high is idle. If low then has less than its minimum although it waits for more,
    it may also work beside high within high's loss budget, which takes precedence.
    `meter`: of the high-priority job. `minimum`: the part of the time that low should have.
    """

    def __init__(self, meter: LossMeter, *, minimum: float, now: float) -> None:
        self._meter = meter
        self._minimum = minimum
        self._rate = 0.0
        self._left = 0.0
        self._last = now
        self._worked = Recent()
        self._waited = Recent()
        self._short_since: float | None = None

    def note(self, *, worked: float, intruded: float, waits: bool, gated: bool, now: float) -> None:
        """Record the seconds of low's work and intrusion since the last call.

        `waits`: it waits at its gate. `gated`: its gate lets it pass while high is idle.
        """
        passed, self._last = now - self._last, now
        self._worked.add(worked, now=now)
        self._waited.add(passed if waits else 0.0, now=now)
        shortfall = min(self._minimum - self.share, self._waited.share)
        if not gated or shortfall <= 0:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        self._adapt(passed)
        if gated and shortfall > 0 and not (self._meter.holding or self._meter.over):
            self._left += min(self._rate, shortfall) * passed
        # Saved time can be spent at once: at most a window's budget. A long micro-step must not
        # cost low more than a minute's budget.
        budget = self._meter.budget
        self._left = min(max(self._left - intruded, -budget * PATIENCE), budget * WINDOW)

    @property
    def allowance(self) -> float:
        """The seconds that low may intrude from now on."""
        return max(self._left, 0.0)

    @property
    def share(self) -> float:
        """The fraction of the last window in which low has worked."""
        return self._worked.share

    @property
    def infeasible(self) -> bool:
        """Whether low has long had less than its minimum, although it has waited for more."""
        return self._short_since is not None and self._last - self._short_since >= PATIENCE

    def _adapt(self, passed: float) -> None:
        """Raise the rate of intrusion slowly while the loss is within the budget; else halve it."""
        if self._meter.loss is None:
            return
        if self._meter.over:
            self._rate *= _FALL**passed
        else:
            self._rate = min(self._minimum, self._rate + _RISE * passed)


LONGEST_MICRO_STEP = 0.005
_MICRO_STEPS_IN_A_STEP = 80
"""The high-priority job returns within a micro-step of low, and so waits for half of it and for the
switch between the two jobs: less than 1 % of its own step."""
OUTSTANDING = 2
"""The most micro-steps of a low-priority job that its gate allows on the card at a time."""


@dataclass(frozen=True, slots=True)
class Effects:
    """A low-priority job since the last look, in seconds. `minimum`: the time that it should have.

    `waits`: it waits at its gate. `normalised`: its speed beside others / its speed alone.
    `gives_way`: it is known to have a gate. `works`: it may have a micro-step on the card.
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
    """The permissions of a low-priority job until the next ruling. Times are in seconds.

    `shut`: its gate is shut. Otherwise it may pass while the high-priority job is idle, and intrude
    for `allowance` from now on. `price`: see `kfext.gpu.hook.pauses`. `infeasible`: it does
    not reach its minimum. `strikes`: for losses. `evict`: it must leave the card. `times_shut`: the
    total number of times that losses shut its gate.
    """

    shut: bool
    micro_step: float
    price: float = PRICE
    allowance: float = 0.0
    infeasible: bool = False
    strikes: int = 0
    evict: bool = False
    times_shut: int = 0


class Neighbours:
    """A high-priority job with a loss budget, and all low-priority jobs beside it.

    Call `note` with each reading of the high-priority job and then `rule`, several times a second.
    """

    def __init__(self, *, budget: float, now: float) -> None:
        self.meter = LossMeter(budget=budget)
        self._strikes = Strikes(now)
        self._pairs: dict[str, Pair] = {}
        self._shut: set[str] = set()

    def remove(self, name: str) -> None:
        """Forget a low-priority job: another job may be added under its name."""
        self._pairs.pop(name, None)
        self._strikes.remove(name)
        self._shut.discard(name)

    def rule(self, lows: Mapping[str, Effects], *, now: float) -> dict[str, Ruling]:
        """Return the ruling of each low-priority job."""
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
        shut = self._strikes.shut(
            losing=meter.over or self._gains_nothing(lows),
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
            meter.restart()  # the others have changed, so the measurements are void
        rulings = {name: self._ruling(name) for name in lows}
        meter.disturbed = any(seen.works for seen in lows.values() if seen.gives_way)
        return rulings

    def _gains_nothing(self, lows: Mapping[str, Effects]) -> bool:
        """Return whether all jobs would end sooner in sequence: the sum of speeds is below 1."""
        loss = self.meter.loss
        parts = [seen.normalised for name, seen in lows.items() if name not in self._shut]
        speeds = [part for part in parts if part is not None]
        if loss is None or not parts or len(speeds) < len(parts):
            return False
        return 1 - loss + sum(speeds) < 1

    def _ruling(self, name: str) -> Ruling:
        pair, record = self._pairs[name], self._strikes.records[name]
        shut = name in self._shut
        return Ruling(
            shut or self.meter.holding,
            self._micro_step(),
            PRICE / 2 if self.meter.over else PRICE,
            pair.allowance,
            infeasible=pair.infeasible,
            strikes=record.strikes,
            evict=record.strikes >= EVICTED_AFTER,
            times_shut=record.times_shut,
        )

    def _micro_step(self) -> float:
        """Return the longest allowed micro-step, by the time of a high-priority step."""
        step = self.meter.step_seconds
        if step is None:
            return LONGEST_MICRO_STEP
        allowed = min(step / _MICRO_STEPS_IN_A_STEP, self.meter.budget * step / OUTSTANDING)
        return min(LONGEST_MICRO_STEP, max(PIECE, allowed))
