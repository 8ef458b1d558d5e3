"""What happens to a job of low priority beside which the one of high priority loses too much.

Its gate is shut for a minute at a time, and after the third time it leaves the card.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kfext.core.gpu.loss import FRESH

PATIENCE = 60.0
"""Seconds of losses before something follows."""
SHUT_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0
"""Of no losses, after which one strike is forgotten."""


@dataclass(slots=True)
class Rung:
    """Where a job stands. `times_shut`: in all, also those that are forgotten."""

    strikes: int = 0
    times_shut: int = 0
    shut_until: float = 0.0


class Ladder:
    """The jobs of low priority on one card; `rungs` are of all that it was asked about."""

    def __init__(self, now: float) -> None:
        self.rungs: dict[str, Rung] = {}
        self._losing_since: float | None = None
        self._windows = 0
        self._calm_since = now

    def recall(self, name: str, strikes: int) -> None:
        """Add strikes that a job has from before all that this knows of it."""
        self.rungs.setdefault(name, Rung()).strikes += strikes

    def shut(
        self, *, losing: bool, windows: int, worked: Mapping[str, float], now: float
    ) -> set[str]:
        """Return whose gates are shut, of the jobs named in `worked`.

        `losing`: too much is lost on the card; `windows`: how often that was measured so far;
        `worked`: how much each job has worked lately. Once losses have lasted, and were confirmed
        by new measurements, the job that has worked most is shut out, of those that were not while
        the losses lasted: one at a time, as others may do no harm.
        """
        self.rungs = {name: self.rungs.get(name) or Rung() for name in worked}
        self._forget(losing=losing, now=now)
        open_ = [name for name in worked if now >= self.rungs[name].shut_until]
        if not losing or not open_:
            self._losing_since = None
        elif self._losing_since is None:
            self._losing_since, self._windows = now, windows
        elif now - self._losing_since >= PATIENCE and windows - self._windows >= FRESH:
            there = [one for one in open_ if self.rungs[one].shut_until <= self._losing_since]
            rung = self.rungs[max(there or open_, key=lambda name: (worked[name], name))]
            rung.strikes += 1
            rung.times_shut += 1
            rung.shut_until = now + SHUT_SECONDS
            self._losing_since = None
        return {name for name in worked if now < self.rungs[name].shut_until}

    def _forget(self, *, losing: bool, now: float) -> None:
        """Take back a strike of each after a long time without losses."""
        if losing or any(now < one.shut_until for one in self.rungs.values()):
            self._calm_since = now
        elif now - self._calm_since >= FORGOTTEN_SECONDS:
            self._calm_since = now
            for rung in self.rungs.values():
                rung.strikes = max(rung.strikes - 1, 0)
