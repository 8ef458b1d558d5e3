"""What is shown of a job's progress, and when it is worth writing again."""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kfext import names
from kfext.core.progress.course import Progress
from kfext.model.verdict import Verdict

_DIGITS = 2


class GrowthState(StrEnum):
    """FlowCon's list that a job is on: it grows, has not for an interval, or for several."""

    NEW = "New"
    WATCHING = "Watching"
    COMPLETING = "Completing"


class Source(StrEnum):
    """Where the numbers come from."""

    LOG = "log"


@dataclass(frozen=True, slots=True)
class Reported:
    """The progress of a job as it stands in its TrainingPlan.

    `growth`: its growth efficiency G in the last interval, None while that is not known.
    `state`: None for a job without a metric of which it is known which way is better.
    `cpu`: the cores that its pods use together, None while that is not known.
    `known`: whether the progress is known, and why not; None while it is too early to say.
    `unmeasured`: why the use is not known although it could be, None if it is.
    """

    progress: Progress = field(default_factory=Progress)
    growth: float | None = None
    state: GrowthState | None = None
    cpu: float | None = None
    source: Source = Source.LOG
    known: Verdict | None = None
    unmeasured: Verdict | None = None

    def after(self, old: "Reported") -> "Reported":
        """Return this one; while it has no progress, with the numbers that were shown before it.

        These end where nothing is recognised: they are of another expression.
        """
        reason = self.known.reason if self.known else ""
        if self.progress.metric or reason == names.REASON_NOTHING_RECOGNISED:
            return self
        known = self.known or old.known
        return replace(old, cpu=self.cpu, known=known, unmeasured=self.unmeasured)


def looks_the_same(one: Reported, other: Reported) -> bool:
    """Return whether no state and no reason differs, and no number in its first two digits.

    The time of the last report is left out: it changes with every line.
    """
    return _shown(one) == _shown(other)


def _shown(reported: Reported) -> tuple[object, ...]:
    progress = reported.progress
    numbers = (
        *(progress.value, progress.step, progress.total, progress.rate, progress.left),
        *(reported.growth, reported.cpu),
    )
    rounded = tuple(None if number is None else _rounded(number) for number in numbers)
    states = (reported.state, reported.source, reported.known, reported.unmeasured)
    return (progress.metric, *states, *rounded)


def _rounded(number: float) -> float:
    """Return a number with two significant digits."""
    if number == 0 or not math.isfinite(number):
        return number
    return round(number, _DIGITS - 1 - math.floor(math.log10(abs(number))))
