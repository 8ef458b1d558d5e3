"""The penalties of low-priority jobs if the high-priority job beside them loses too much.

The gate of a low-priority job is shut for a minute, and after the third time the job leaves the
card. The minute of losses before that may have breaks: a measured loss counts until enough time
within the budget has made up for it, so occasional pauses do not evade the budget.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kfext.gpu.rules.loss import FRESH

PATIENCE = 60.0
"""Seconds of losses, in total since they began, before a gate is shut."""
SHUT_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0
"""Seconds without losses after which one strike is forgotten."""
_TOLERANCE = 0.1
"""An excess up to this does not count: intrusion keeps the loss close to the budget."""


@dataclass(slots=True)
class StrikeRecord:
    """The record of a job. `times_shut`: the total number of strikes, with the forgotten strikes.

    `losing`: the seconds of the current losses during which its gate was open. `windows`: the
    number of windows measured before these losses.
    """

    strikes: int = 0
    times_shut: int = 0
    shut_until: float = 0.0
    losing: float = 0.0
    windows: int = 0


class Strikes:
    """The strikes of the low-priority jobs on one card. `records`: of each job, by its name."""

    def __init__(self, now: float) -> None:
        self.records: dict[str, StrikeRecord] = {}
        self._owed, self._losing = 0.0, False
        self._worked: Mapping[str, float] = {}
        self._calm_since = self._last = now

    def remove(self, name: str) -> None:
        """Forget a job, and the current losses if it is the main suspect."""
        self.records.pop(name, None)
        if name == _busiest(self._worked, self._worked):
            self._forget_losses()

    def shut(
        self, *, losing: bool, windows: int, worked: Mapping[str, float], now: float, excess: float
    ) -> set[str]:
        """Return the jobs in `worked` with shut gates.

        `losing`: whether the losses on the card are too large. `excess`, `windows`: see
        `LossMeter`. `worked`: the recent share of each job. Losses that last, and that new windows
        confirm, shut out the job with the largest share, among the jobs with an open gate during at
        least half of the losses. One job at a time is shut out, since the others may do no harm.
        """
        elapsed, self._last = now - self._last, now
        self._worked = worked
        self.records = {name: self.records.get(name) or StrikeRecord() for name in worked}
        self._forget_strikes(losing=losing, now=now)
        open_ = [name for name in worked if now >= self.records[name].shut_until]
        if not self._count_losses(open_, elapsed, losing=losing, windows=windows, excess=excess):
            self._forget_losses()
        elif losing and any(self._confirmed(name, windows) for name in open_):
            suspects = [name for name in open_ if self.records[name].losing >= PATIENCE / 2]
            record = self.records[_busiest(suspects, worked)]
            record.strikes += 1
            record.times_shut += 1
            record.shut_until = now + SHUT_SECONDS
            self._forget_losses()
        return {name for name in worked if now < self.records[name].shut_until}

    def _count_losses(
        self, open_: Iterable[str], elapsed: float, *, losing: bool, windows: int, excess: float
    ) -> bool:
        """Count the time since the last call; return whether losses are still not made up for."""
        records = [self.records[name] for name in open_]
        for record in records if losing else ():
            record.windows = record.windows if record.losing > 0 else windows
            record.losing += elapsed if self._losing else 0.0
        self._losing = losing
        rate = max(excess, 0.0 if losing else -1.0)
        self._owed = min(max(self._owed + elapsed * (rate - _TOLERANCE), 0.0), FORGOTTEN_SECONDS)
        return bool(records) and (losing or self._owed > 0)

    def _confirmed(self, name: str, windows: int) -> bool:
        record = self.records[name]
        return record.losing >= PATIENCE and windows - record.windows >= FRESH

    def _forget_losses(self) -> None:
        self._owed, self._losing = 0.0, False
        for record in self.records.values():
            record.losing = 0.0

    def _forget_strikes(self, *, losing: bool, now: float) -> None:
        """Remove a strike of each job after a long time without losses."""
        if losing or any(now < record.shut_until for record in self.records.values()):
            self._calm_since = now
        elif now - self._calm_since >= FORGOTTEN_SECONDS:
            self._calm_since = now
            for record in self.records.values():
                record.strikes = max(record.strikes - 1, 0)


def _busiest(names: Iterable[str], worked: Mapping[str, float]) -> str:
    """Return the job with the largest share; empty without jobs."""
    return max(names, key=lambda name: (worked[name], name), default="")
