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
"""Added each second to the fraction of time in which the low-priority job may intrude."""
_FALL = 0.5
"""The factor of that fraction for each second in which the loss is over the budget."""


class Pair:
    """The time that one low-priority job may work beside the high-priority job.

    It works while the high-priority job is idle. If it then has less than its minimum although it
    waits for more, it may intrude: work while that job is busy, within the loss budget of that job.
    `meter`: measures the high-priority job. `minimum`: the fraction of the time that the
    low-priority job should have.
    """

    def __init__(self, meter: LossMeter, *, minimum: float, now: float) -> None:
        self._meter = meter
        self._minimum = minimum
        self._rate = 0.0
        self._balance = 0.0
        self._last = now
        self._worked = Recent()
        self._waited = Recent()
        self._short_since: float | None = None

    def record(
        self, *, worked: float, intruded: float, waiting: bool, gated: bool, now: float
    ) -> None:
        """Record the seconds that the low-priority job worked and intruded since the last call.

        `waiting`: whether it waits at its gate. `gated`: whether its gate opens while the
        high-priority job is idle.
        """
        elapsed, self._last = now - self._last, now
        self._worked.add(worked, now=now)
        self._waited.add(elapsed if waiting else 0.0, now=now)
        shortfall = min(self._minimum - self.share, self._waited.share)
        if not gated or shortfall <= 0:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        self._adapt(elapsed)
        if gated and shortfall > 0 and not (self._meter.holding or self._meter.over):
            self._balance += min(self._rate, shortfall) * elapsed
        # Saved time can be spent at once, so it is at most the budget of a window. A long
        # micro-step must not cost the job more than the budget of a minute.
        budget = self._meter.budget
        self._balance = min(max(self._balance - intruded, -budget * PATIENCE), budget * WINDOW)

    @property
    def allowance(self) -> float:
        """The seconds that the low-priority job may intrude from now on."""
        return max(self._balance, 0.0)

    @property
    def share(self) -> float:
        """The fraction of the last window in which the low-priority job has worked."""
        return self._worked.share

    @property
    def infeasible(self) -> bool:
        """Whether the job has long had less than its minimum, although it has waited for more."""
        return self._short_since is not None and self._last - self._short_since >= PATIENCE

    def _adapt(self, elapsed: float) -> None:
        """Raise the rate of intrusion slowly while the loss is within the budget; else halve it."""
        if self._meter.loss is None:
            return
        if self._meter.over:
            self._rate *= _FALL**elapsed
        else:
            self._rate = min(self._minimum, self._rate + _RISE * elapsed)


LONGEST_MICRO_STEP = 0.005
_MICRO_STEPS_IN_A_STEP = 80
"""If the high-priority job gets work during a micro-step, it waits for half of it on average, and
for the switch between the two jobs: less than 1 % of its own step."""
OUTSTANDING = 2
"""The most micro-steps of a low-priority job that its gate allows on the card at a time."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What a low-priority job did on the card since the last call of `Neighbours.rule`, in seconds.

    `minimum`: the fraction of the time that it should have. `waits`: whether it waits at its gate.
    `normalised`: its speed beside others / its speed alone; None means unknown. `gives_way`:
    whether it is known to have a gate. `may_work`: whether it may have a micro-step on the card.
    """

    minimum: float
    worked: float
    intruded: float
    waits: bool
    normalised: float | None = None
    gives_way: bool = True
    may_work: bool = False


@dataclass(frozen=True, slots=True)
class Ruling:
    """The permissions of a low-priority job until the next ruling. Times are in seconds.

    `shut`: whether its gate is shut. Otherwise it may pass while the high-priority job is idle, and
    intrude for `allowance` from now on. `micro_step`: the longest micro-step allowed. `price`: see
    `kfext.gpu.hook.pauses`. `infeasible`: see `Pair`. `strikes`: the strikes that still count.
    `evict`: whether it must leave the card. `times_shut`: how often losses have shut its gate.
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

    Several times a second, call `meter.record` with a reading of the high-priority job, and `rule`.
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
        meter.held_back = all(low.gives_way for low in lows.values())
        self._pairs = {
            name: self._pairs.get(name) or Pair(meter, minimum=low.minimum, now=now)
            for name, low in lows.items()
        }
        for name, low in lows.items():
            self._pairs[name].record(
                worked=low.worked,
                intruded=low.intruded,
                waiting=low.waits,
                gated=name not in self._shut,
                now=now,
            )
        shut = self._strikes.shut(
            losing=meter.over or self._gains_nothing(lows),
            excess=meter.excess,
            windows=meter.windows,
            # How much a job without a gate uses is unknown, so it is suspected first.
            worked={
                name: pair.share if lows[name].gives_way else math.inf
                for name, pair in self._pairs.items()
            },
            now=now,
        )
        if shut != self._shut:
            self._shut = shut
            meter.restart()  # the jobs beside it have changed, so the measurements are void
        rulings = {name: self._ruling(name) for name in lows}
        meter.disturbed = any(low.may_work for low in lows.values() if low.gives_way)
        return rulings

    def _gains_nothing(self, lows: Mapping[str, Effects]) -> bool:
        """Return whether the jobs would end sooner in sequence: their speeds add up to below 1."""
        loss = self.meter.loss
        active = [low.normalised for name, low in lows.items() if name not in self._shut]
        speeds = [speed for speed in active if speed is not None]
        if loss is None or not active or len(speeds) < len(active):
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
        """Return the longest micro-step allowed, by the time of a high-priority step."""
        step = self.meter.step_seconds
        if step is None:
            return LONGEST_MICRO_STEP
        allowed = min(step / _MICRO_STEPS_IN_A_STEP, self.meter.budget * step / OUTSTANDING)
        return min(LONGEST_MICRO_STEP, max(PIECE, allowed))
