"""The displayed progress of a job: the field `status.progress` of a TrainingPlan."""

import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kfext import names
from kfext.core.progress.stall import MOVES, stalled
from kfext.errors import QuantityError
from kfext.model.quantity import CPU, amount
from kfext.model.timestamps import timestamp, written_time
from kfext.model.tolerant import mapping, text
from kfext.model.verdict import Verdict

_DIGITS = 2
_LONGEST_METRIC = 253
_LARGEST = sys.float_info.max
LATE = 1.2
"""A job may need this many times the remaining time that its progress predicts."""
_SILENT_SECONDS = 60.0
"""If a job is silent for this long beyond that time, its end is unknown."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The last report of a job about itself; None stands for a value that it does not report.

    `metric`, `value`: the name of its best measure, and the last value; None for NaN.
    `step`, `total`, `rate`: the step, the number of steps, and the steps per second.
    `remaining`: the seconds until its end at that rate.
    `at`: when the job last printed that measure, in epoch seconds.
    """

    metric: str = ""
    value: float | None = None
    step: int | None = None
    total: int | None = None
    rate: float | None = None
    remaining: float | None = None
    at: float | None = None

    @property
    def shown(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.metric) or self.step is not None

    def remaining_at(self, now: float, *, since: float) -> float | None:
        """Return the remaining seconds at `now`; `since`: the last start, both in epoch seconds."""
        if self.remaining is None or self.overdue(now, since=since):
            return None
        return max(0.0, self.remaining - self._silent(now, since))

    def overdue(self, now: float, *, since: float) -> bool:
        """Return whether the job has been silent for so long that its remaining time is unknown."""
        silent, remaining = self._silent(now, since), self.remaining
        return remaining is not None and silent > LATE * remaining + _SILENT_SECONDS

    def _silent(self, now: float, since: float) -> float:
        """Return the seconds since the job last printed or started."""
        return 0.0 if self.at is None else max(0.0, now - max(self.at, since))


class GrowthState(StrEnum):
    """FlowCon's list of a job: it grows, did not grow in the last interval, or in several."""

    NEW = "New"
    WATCHING = "Watching"
    COMPLETING = "Completing"


@dataclass(frozen=True, slots=True)
class Reported:
    """The progress of a job in its TrainingPlan. None stands for an unknown value.

    `growth`: its growth efficiency G in the last interval.
    `state`: its list; None means that no metric is known to improve up or down.
    `cpu`: the cores that its pods use together.
    `known`: whether the progress is known, and if not, why; or None before that is decided.
    `unmeasured`: why the CPU use is unknown although it could be known, or None.
    `moves`: MOVES; or why the job is stalled; or why that is unknown; or None before a verdict.
    """

    progress: Progress = field(default_factory=Progress)
    growth: float | None = None
    state: GrowthState | None = None
    cpu: float | None = None
    known: Verdict | None = None
    unmeasured: Verdict | None = None
    moves: Verdict | None = None

    def after(self, old: "Reported") -> "Reported":
        """Return this progress; if it has no numbers, with the numbers that were shown before it.

        If nothing is recognised, the old numbers are dropped, because they belong to an earlier
        expression. The verdict that a job is stalled remains until the next verdict.
        """
        reason = self.known.reason if self.known else ""
        moves = self.moves or stalled(old.moves)
        if self.progress.shown or reason == names.REASON_NOTHING_RECOGNISED:
            return replace(self, moves=moves)
        known = self.known or old.known
        return replace(old, cpu=self.cpu, known=known, unmeasured=self.unmeasured, moves=moves)


def looks_the_same(reported: Reported, other: Reported) -> bool:
    """Return whether states, reasons and the first two digits of all numbers are equal."""
    return _shown(reported) == _shown(other)


def _shown(reported: Reported) -> tuple[object, ...]:
    progress = reported.progress
    numbers = (
        *(progress.value, progress.step, progress.total, progress.rate, progress.remaining),
        *(reported.growth, reported.cpu),
    )
    rounded = tuple(None if number is None else _rounded(number) for number in numbers)
    states = (reported.state, reported.known, reported.unmeasured, reported.moves)
    return (progress.metric, *states, *rounded)


def _rounded(number: float) -> float:
    """Return a number rounded to `_DIGITS` significant digits."""
    if number == 0 or not math.isfinite(number):
        return number
    return round(number, _DIGITS - 1 - math.floor(math.log10(abs(number))))


def as_written(reported: Reported) -> Reported | None:
    """Return the progress as it will be read back after a write; None means nothing is known."""
    progress = reported.progress
    written = replace(
        reported,
        cpu=None if reported.cpu is None else round(1000 * reported.cpu) / 1000,
        moves=None if reported.moves == MOVES else reported.moves,
        progress=replace(
            progress,
            metric=progress.metric[:_LONGEST_METRIC],
            remaining=None if progress.remaining is None else float(round(progress.remaining)),
            at=None if progress.at is None else float(int(progress.at)),
        ),
    )
    return None if written == Reported() else written


def encode_progress(reported: Reported | None) -> dict[str, Any] | None:
    """Return the JSON field. In a merge patch, null removes a value that is no longer known."""
    if reported is None or (not reported.progress.shown and reported.cpu is None):
        return None
    progress = reported.progress
    return {
        "metric": progress.metric,
        "value": progress.value,
        "step": progress.step,
        "totalSteps": progress.total,
        "stepsPerSecond": progress.rate,
        "secondsLeft": None if progress.remaining is None else int(progress.remaining),
        "time": None if progress.at is None else written_time(progress.at),
        "growth": reported.growth,
        "state": reported.state,
        "cpu": None if reported.cpu is None else f"{round(1000 * reported.cpu)}m",
    }


def decode_progress(raw: object, conditions: Mapping[Any, Mapping[str, Any]]) -> Reported | None:
    """Return the progress from its JSON and the conditions by type, or None. Never raises."""
    written = mapping(raw)
    known = _verdict(conditions.get(names.PROGRESS_KNOWN))
    unmeasured = _verdict(conditions.get(names.CPU_USE_KNOWN))
    moves = _verdict(conditions.get(names.PROGRESSING))
    if not written and known is None and unmeasured is None and moves is None:
        return None
    cpu = None
    with suppress(QuantityError):
        cpu = amount(CPU, written["cpu"]) / 1000 if "cpu" in written else None
    state = text(written.get("state"))
    remaining = _count(written.get("secondsLeft"))
    return Reported(
        progress=Progress(
            metric=text(written.get("metric")),
            value=_number(written.get("value")),
            step=_count(written.get("step")),
            total=_count(written.get("totalSteps")),
            rate=_number(written.get("stepsPerSecond")),
            remaining=None if remaining is None else float(remaining),
            at=timestamp(written["time"]) if "time" in written else None,
        ),
        growth=_number(written.get("growth")),
        state=GrowthState(state) if state in set(GrowthState) else None,
        cpu=cpu,
        known=known,
        unmeasured=unmeasured,
        moves=moves,
    )


def _verdict(condition: Mapping[str, Any] | None) -> Verdict | None:
    if condition is None:
        return None
    return Verdict(text(condition.get("reason")), text(condition.get("message")))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _LARGEST else None
