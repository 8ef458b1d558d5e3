"""A high-priority and a low-priority job on a card: how long low may work beside high.

Low works while high is idle. If that leaves low less than its minimum although it waits for more,
it may also work beside high within high's loss budget: the budget wins.
"""

from kfext.gpu.rules.ladder import PATIENCE
from kfext.gpu.rules.loss import LossMeter
from kfext.gpu.rules.tally import WINDOW, Recent

_RISE = 0.02
"""The rise per second of the part of the time in which low may intrude."""
_FALL = 0.5


class Pair:
    """How long one low-priority job may intrude.

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
        """Record what low has done since the last call: seconds of work, and of intrusion.

        `waits`: it waits at its gate. `gated`: its gate lets it pass while high is idle.
        """
        passed, self._last = now - self._last, now
        self._worked.add(worked, now=now)
        self._waited.add(passed if waits else 0.0, now=now)
        short = min(self._minimum - self.share, self._waited.share)
        if not gated or short <= 0:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        self._adapt(passed)
        if gated and short > 0 and not (self._meter.holding or self._meter.over):
            self._left += min(self._rate, short) * passed
        # Saved time can be spent at once, so it may not exceed a window's budget. A long micro-step
        # may not cost low more than a minute's budget.
        budget = self._meter.budget
        self._left = min(max(self._left - intruded, -budget * PATIENCE), budget * WINDOW)

    @property
    def allowance(self) -> float:
        """For how many seconds low may intrude from now on."""
        return max(self._left, 0.0)

    @property
    def share(self) -> float:
        """The part of the last window in which low has worked."""
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
