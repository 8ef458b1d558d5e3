"""The field `status.progress` of a TrainingPlan, as a value and as the API server's JSON."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kfext.core.progress.course import Progress
from kfext.core.progress.reported import GrowthState, Reported, Source
from kfext.errors import QuantityError
from kfext.model.quantity import CPU, amount
from kfext.model.timestamps import timestamp, written_time
from kfext.model.tolerant import mapping, text
from kfext.model.verdict import Verdict
from kfext.names import CPU_USE_KNOWN, PROGRESS_KNOWN

_LONGEST_METRIC = 253
_LARGEST = sys.float_info.max


def as_written(reported: Reported) -> Reported:
    """Return a progress as it can be written: what is read again is equal to it."""
    progress = reported.progress
    return replace(
        reported,
        cpu=None if reported.cpu is None else round(1000 * reported.cpu) / 1000,
        progress=replace(
            progress,
            metric=progress.metric[:_LONGEST_METRIC],
            left=None if progress.left is None else float(round(progress.left)),
            at=None if progress.at is None else float(int(progress.at)),
        ),
    )


def encode_progress(reported: Reported | None) -> dict[str, Any] | None:
    """Return the field. In a merge patch, null removes what is no longer known."""
    if reported is None or (not reported.progress.metric and reported.cpu is None):
        return None
    progress = reported.progress
    return {
        "metric": progress.metric,
        "value": progress.value,
        "step": progress.step,
        "totalSteps": progress.total,
        "stepsPerSecond": progress.rate,
        "secondsLeft": None if progress.left is None else int(progress.left),
        "time": None if progress.at is None else written_time(progress.at),
        "growth": reported.growth,
        "state": reported.state,
        "cpu": None if reported.cpu is None else f"{round(1000 * reported.cpu)}m",
        "source": reported.source,
    }


def decode_progress(raw: object, conditions: Mapping[Any, Mapping[str, Any]]) -> Reported | None:
    """Return the progress from its JSON and the conditions by type, None if they have nothing.

    Total, whatever the input: a part that is malformed counts as absent.
    """
    written = mapping(raw)
    known = _verdict(conditions.get(PROGRESS_KNOWN))
    unmeasured = _verdict(conditions.get(CPU_USE_KNOWN))
    if not written and known is None and unmeasured is None:
        return None
    cpu = None
    with suppress(QuantityError):
        cpu = amount(CPU, written["cpu"]) / 1000 if "cpu" in written else None
    state = text(written.get("state"))
    left = _count(written.get("secondsLeft"))
    return Reported(
        progress=Progress(
            metric=text(written.get("metric")),
            value=_number(written.get("value")),
            step=_count(written.get("step")),
            total=_count(written.get("totalSteps")),
            rate=_number(written.get("stepsPerSecond")),
            left=None if left is None else float(left),
            at=timestamp(written["time"]) if "time" in written else None,
        ),
        growth=_number(written.get("growth")),
        state=GrowthState(state) if state in set(GrowthState) else None,
        cpu=cpu,
        source=Source.LOG,
        known=known,
        unmeasured=unmeasured,
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
