"""What a job of high priority and those of low priority on its card may do, second by second.

Low ones work while the high one is idle. If that leaves one of them less than its minimum, it may
work beside the high one too, as far as that one's loss budget allows: the budget wins. A pair that
goes on losing is taken apart.
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from kfext.core.gpu.loss import LossMeter

WINDOW = 10.0
"""Seconds in which a minimum share is meant."""
PATIENCE = 60.0
"""Seconds of loss over the budget, or of a share below the minimum, before something follows."""
SHUT_SECONDS = 60.0
TICKET_SECONDS = 30.0
"""While the gate is shut a low job may make one step in that time, so that collectives live."""
EVICTED_AFTER = 3
"""Times that the gate was shut before a low job leaves the card."""
LONGEST_MICRO_STEP = 0.005
_SHORTEST_MICRO_STEP = 0.001
_RISE = 0.02
"""What is added to the part of the time in which low may intrude, a second."""
_FALL = 0.5


class Gate(StrEnum):
    """What the gate of the low jobs does."""

    GATED = "gated"
    HELD = "held"
    SHUT = "shut"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What holds until the next call. `allowance`: seconds of intrusion, in all since the start.

    `tickets`: steps, in all since the start, that low may begin while the gate is shut.
    """

    gate: Gate
    allowance: float
    tickets: int
    micro_step: float
    infeasible: bool = False
    evict: bool = False


class Pair:
    """A job of high priority and one of low on a card.

    `meter`: of the high one, which others share if there are more low ones; `budget`: the part of
    its speed that it may lose; `minimum`: the part of the time that low should have. Call `rule`
    some times in a second, after the meter's `note`.
    """

    def __init__(self, meter: LossMeter, *, budget: float, minimum: float, now: float) -> None:
        self._meter = meter
        self._budget = budget
        self._minimum = minimum
        self._rate = 0.0
        self._allowance = 0.0
        self._tickets = 0
        self._times_shut = 0
        self._shut_until = 0.0
        self._next_ticket = 0.0
        self._last = now
        self._worked: deque[tuple[float, float]] = deque([(now, 0.0)])
        self._over_since: float | None = None
        self._short_since: float | None = None

    def rule(self, *, worked: float, now: float) -> Ruling:
        """Return what holds, from the seconds that low has worked in all."""
        share = self._share(now, worked)
        loss = self._meter.loss
        shut = self._look_at_losses(now, loss)
        short = self._minimum - share
        self._short_since = _since(self._short_since, now, holds=short > 0 and not shut)
        passed, self._last = now - self._last, now
        if loss is not None:
            falls = loss > self._budget
            self._rate = (
                self._rate * _FALL**passed
                if falls
                else min(self._minimum, self._rate + _RISE * passed)
            )
            if short > 0 and not (shut or falls or self._meter.holding):
                self._allowance += min(self._rate, short) * passed
        gate = Gate.SHUT if shut else Gate.HELD if self._meter.holding else Gate.GATED
        return Ruling(
            gate,
            self._allowance,
            self._tickets,
            self._micro_step(),
            infeasible=_lasts(self._short_since, now),
            evict=self._times_shut >= EVICTED_AFTER,
        )

    def _share(self, now: float, worked: float) -> float:
        """Return the part of the last window in which low has worked."""
        self._worked.append((now, worked))
        while len(self._worked) > 2 and now - self._worked[1][0] >= WINDOW:
            self._worked.popleft()
        began, before = self._worked[0]
        return (worked - before) / max(now - began, WINDOW)

    def _look_at_losses(self, now: float, loss: float | None) -> bool:
        """Return whether the gate is shut; shut it if the pair has lost for too long."""
        if now < self._shut_until:
            if now >= self._next_ticket:
                self._tickets += 1
                self._next_ticket += TICKET_SECONDS
            return True
        over = loss is not None and loss > self._budget
        self._over_since = _since(self._over_since, now, holds=over)
        if not _lasts(self._over_since, now):
            return False
        self._times_shut += 1
        self._over_since = None
        self._shut_until, self._next_ticket = now + SHUT_SECONDS, now + TICKET_SECONDS
        return True

    def _micro_step(self) -> float:
        """Return how long a micro-step may be: high loses half of one in each of its steps."""
        step = self._meter.step_seconds
        if step is None:
            return LONGEST_MICRO_STEP
        return min(LONGEST_MICRO_STEP, max(_SHORTEST_MICRO_STEP, self._budget * step))


def _since(before: float | None, now: float, *, holds: bool) -> float | None:
    if not holds:
        return None
    return now if before is None else before


def _lasts(since: float | None, now: float) -> bool:
    return since is not None and now - since >= PATIENCE
