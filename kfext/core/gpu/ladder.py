"""What happens to a job of low priority beside which the one of high priority loses too much.

Its gate is shut for a minute at a time, and after the third time it leaves the card. The minute of
losses that leads to that may have breaks: what was measured to be lost counts until as much time
has passed within the budget as makes up for it, so a rest now and then is no way around the budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kfext.core.gpu.loss import FRESH

PATIENCE = 60.0
"""Seconds of losses before something follows, in all since they began."""
SHUT_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0
"""Of no losses, after which one strike is forgotten."""
_TOLERANCE = 0.1
"""In budgets. Allowances keep the loss close to the budget, so small overshoots are not counted."""


@dataclass(slots=True)
class Rung:
    """Where a job stands. `times_shut`: in all, also those that are forgotten."""

    strikes: int = 0
    times_shut: int = 0
    shut_until: float = 0.0


@dataclass(slots=True)
class _Losses:
    """A period of losses, possibly with breaks. `jobs`: those whose gates were open all the time.

    `windows`: how many had been measured when it began; `seconds`: of losses; `owed`: what was lost
    over the budget, in seconds of a whole budget.
    """

    jobs: frozenset[str]
    windows: int
    seconds: float = 0.0
    owed: float = 0.0

    def goes_on(self, passed: float, *, losing: bool, excess: float) -> bool:
        """Take in the time since the last call; return whether it is not made up for yet."""
        self.seconds += passed if losing else 0.0
        more = max(excess, 0.0 if losing else -1.0)
        self.owed = min(max(self.owed + passed * (more - _TOLERANCE), 0.0), FORGOTTEN_SECONDS)
        return losing or self.owed > 0


class Ladder:
    """The jobs of low priority on one card; `rungs` are of all that it was asked about."""

    def __init__(self, now: float) -> None:
        self.rungs: dict[str, Rung] = {}
        self._losses: _Losses | None = None
        self._calm_since = self._last = now

    def remove(self, name: str) -> None:
        """Forget a job, and what was lost beside it: others may do no harm."""
        self.rungs.pop(name, None)
        self.restart()

    def restart(self) -> None:
        """Forget what was lost: the job of high priority has other processes, or other jobs."""
        self._losses = None

    def recall(self, name: str, strikes: int) -> None:
        """Add strikes that a job has from before all that this knows of it."""
        self.rungs.setdefault(name, Rung()).strikes += strikes

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
        by new measurements, the job that has worked most is shut out, of those that were not while
        the losses lasted: one at a time, as others may do no harm.
        """
        passed, self._last = now - self._last, now
        self.rungs = {name: self.rungs.get(name) or Rung() for name in worked}
        self._forget(losing=losing, now=now)
        open_ = [name for name in worked if now >= self.rungs[name].shut_until]
        losses = self._losses
        if not open_:
            self._losses = None
        elif losses is None:
            self._losses = _Losses(frozenset(open_), windows) if losing else None
        elif not losses.goes_on(passed, losing=losing, excess=excess):
            self._losses = None
        elif losing and losses.seconds >= PATIENCE and windows - losses.windows >= FRESH:
            self._losses = None
            there = [name for name in open_ if name in losses.jobs]
            if there:
                rung = self.rungs[max(there, key=lambda name: (worked[name], name))]
                rung.strikes += 1
                rung.times_shut += 1
                rung.shut_until = now + SHUT_SECONDS
        return {name for name in worked if now < self.rungs[name].shut_until}

    def _forget(self, *, losing: bool, now: float) -> None:
        """Take back a strike of each after a long time without losses."""
        if losing or any(now < one.shut_until for one in self.rungs.values()):
            self._calm_since = now
        elif now - self._calm_since >= FORGOTTEN_SECONDS:
            self._calm_since = now
            for rung in self.rungs.values():
                rung.strikes = max(rung.strikes - 1, 0)
