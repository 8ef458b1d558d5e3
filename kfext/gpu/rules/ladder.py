"""What happens to a job of low priority beside which the one of high priority loses too much.

Its gate is shut for a minute at a time, and after the third time it leaves the card. The minute of
losses that leads to that may have breaks: what was measured to be lost counts until as much time
has passed within the budget as makes up for it, so a rest now and then is no way around the budget.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kfext.gpu.rules.loss import FRESH

PATIENCE = 60.0
"""Seconds of losses before something follows, in all since they began."""
SHUT_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0
"""Of no losses, after which one strike is forgotten."""
_TOLERANCE = 0.1
"""In budgets. Allowances keep the loss close to the budget, so small overshoots are not counted."""


@dataclass(slots=True)
class Rung:
    """Where a job stands. `times_shut`: in all, also those that are forgotten.

    `losing`: seconds of the present losses for which its gate was open, from when so many `windows`
    had been measured.
    """

    strikes: int = 0
    times_shut: int = 0
    shut_until: float = 0.0
    losing: float = 0.0
    windows: int = 0


class Ladder:
    """The jobs of low priority on one card; `rungs` are of all that it was asked about."""

    def __init__(self, now: float) -> None:
        self.rungs: dict[str, Rung] = {}
        self._owed, self._losing = 0.0, False
        self._worked: Mapping[str, float] = {}
        self._calm_since = self._last = now

    def remove(self, name: str) -> None:
        """Forget a job; and the present losses, if it is the one suspected of them."""
        self.rungs.pop(name, None)
        if name == _busiest(self._worked, self._worked):
            self._forget_losses()

    def shut(
        self,
        *,
        losing: bool,
        windows: int,
        worked: Mapping[str, float],
        now: float,
        excess: float,
    ) -> set[str]:
        """Return whose gates are shut, of the jobs named in `worked`.

        `losing`: too much is lost on the card; `excess`: how far over its budget the job of high
        priority is, in budgets, below 0 within it; `windows`: how often that was measured so far;
        `worked`: how much each job has worked lately. Once losses have lasted, and were confirmed
        by new measurements, the job that has worked most is shut out, of those whose gates were
        open for at least half of the losses: one at a time, as others may do no harm.
        """
        passed, self._last = now - self._last, now
        self._worked = worked
        self.rungs = {name: self.rungs.get(name) or Rung() for name in worked}
        self._forget_strikes(losing=losing, now=now)
        open_ = [name for name in worked if now >= self.rungs[name].shut_until]
        if not self._lost(open_, passed, losing=losing, windows=windows, excess=excess):
            self._forget_losses()
        elif losing and any(self._confirmed(name, windows) for name in open_):
            there = [name for name in open_ if self.rungs[name].losing >= PATIENCE / 2]
            rung = self.rungs[_busiest(there, worked)]
            rung.strikes += 1
            rung.times_shut += 1
            rung.shut_until = now + SHUT_SECONDS
            self._forget_losses()
        return {name for name in worked if now < self.rungs[name].shut_until}

    def _lost(
        self, open_: Iterable[str], passed: float, *, losing: bool, windows: int, excess: float
    ) -> bool:
        """Take in the time since the last call; return whether losses are not made up for yet."""
        rungs = [self.rungs[name] for name in open_]
        for rung in rungs if losing else ():
            rung.windows = rung.windows if rung.losing > 0 else windows
            rung.losing += passed if self._losing else 0.0
        self._losing = losing
        more = max(excess, 0.0 if losing else -1.0)
        self._owed = min(max(self._owed + passed * (more - _TOLERANCE), 0.0), FORGOTTEN_SECONDS)
        return bool(rungs) and (losing or self._owed > 0)

    def _confirmed(self, name: str, windows: int) -> bool:
        rung = self.rungs[name]
        return rung.losing >= PATIENCE and windows - rung.windows >= FRESH

    def _forget_losses(self) -> None:
        self._owed, self._losing = 0.0, False
        for rung in self.rungs.values():
            rung.losing = 0.0

    def _forget_strikes(self, *, losing: bool, now: float) -> None:
        """Take back a strike of each after a long time without losses."""
        if losing or any(now < one.shut_until for one in self.rungs.values()):
            self._calm_since = now
        elif now - self._calm_since >= FORGOTTEN_SECONDS:
            self._calm_since = now
            for rung in self.rungs.values():
                rung.strikes = max(rung.strikes - 1, 0)


def _busiest(names: Iterable[str], worked: Mapping[str, float]) -> str:
    """Return which of some jobs has worked most, empty if there is none."""
    return max(names, key=lambda name: (worked[name], name), default="")
