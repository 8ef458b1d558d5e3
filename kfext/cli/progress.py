"""The progress of a job in words, from its TrainingPlan or its log.

The job can write anything there, so its length is bounded and control characters are removed.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kfext import names
from kfext.cli.output import Columns, columns, plain, short
from kfext.core.progress.course import progress_of
from kfext.core.progress.fields import visible
from kfext.core.progress.followed import INTERVAL, Followed
from kfext.core.progress.reported import Reported, decode_progress
from kfext.core.settings.table import parse_setting
from kfext.core.settings.values import STDOUT, MetricsSource
from kfext.core.words import age, cpus
from kfext.errors import BadRequest, UserError
from kfext.kube.client import Client
from kfext.kube.pod_log import PodLog
from kfext.model.job import TrainingJob
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.tolerant import mapping, sequence
from kfext.state.reports.printers import printing_container, printing_pods

STOPPED = (names.QUEUED, names.SUSPENDED, names.FINISHED)
"""The phases of a job without pods that train."""
_WHILE_STOPPED = {
    "stepsPerSecond": None,
    "secondsLeft": None,
    "growth": None,
    "state": "",
    "cpuCores": None,
}
"""The fields that only running jobs have, with the values that other jobs show."""
_MAX_LINES = 10
"""The most lines of a log in the table; the newest are shown."""
_WIDEST = 60
"""The most characters of a line of a log, or of its metrics."""
_LONGEST_NAME = 24
"""The most characters of the name of a metric, which comes from a log."""
_SERIES: Columns = {
    "TIME": lambda point: point["time"][11:19],
    "STEP": lambda point: "" if point["step"] is None else str(point["step"]),
    "METRICS": lambda point: " ".join(
        f"{name}={'not a number' if value is None else short(value)}"
        for name, value in point["metrics"].items()
    )[:_WIDEST],
    "LINE": lambda point: point["line"],
}


def shows(status: Mapping[str, Any], type_: str, value: str) -> bool:
    """Return whether a TrainingPlan shows a condition with this status."""
    conditions = map(mapping, sequence(status.get("conditions")))
    pairs = ((condition.get("type"), condition.get("status")) for condition in conditions)
    return (type_, value) in pairs


def progress_in(status: Mapping[str, Any], *, now: float) -> dict[str, Any] | None:
    """Return the progress in the status of a TrainingPlan; None means that no field is valid.

    Absent and malformed fields are None, or an empty text. `now` is in epoch seconds.
    """
    reported = decode_progress(status.get("progress"), {})
    if reported is None:
        return None
    values = _values(reported, now=now)
    if status.get("phase") in STOPPED:
        values |= _WHILE_STOPPED
    valid = any(value not in {None, ""} for key, value in values.items() if key != "ageSeconds")
    return values if valid else None


def _values(reported: Reported, *, now: float) -> dict[str, Any]:
    progress = reported.progress
    return {
        "metric": _name(progress.metric),
        "value": progress.value,
        "step": progress.step,
        "totalSteps": progress.total,
        "stepsPerSecond": progress.rate,
        "secondsLeft": None if progress.remaining is None else int(progress.remaining),
        "growth": reported.growth,
        "state": reported.state.value if reported.state else "",
        "cpuCores": reported.cpu,
        "ageSeconds": max(0, int(now - progress.at)) if progress.at else None,
    }


def _name(raw: str) -> str:
    name = " ".join(plain(visible(raw)).split())
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


NO_PROGRESS = _values(Reported(), now=0.0)
"""The progress of a job that reported nothing."""


def progress_lines(progress: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield at most two phrases: the position of the job, and its growth."""
    if progress is None:
        return
    reported, remaining = age(progress["ageSeconds"]), age(progress["secondsLeft"])
    growth, cores = progress["growth"], progress["cpuCores"]
    parts = (
        f"{progress['metric']} {short(progress['value'])}".strip(),
        f"step {steps(progress, separator=' of ')}" if progress["step"] is not None else "",
        f"{short(progress['stepsPerSecond'])} a second" if progress["stepsPerSecond"] else "",
        f"{remaining} left" if remaining else "",
    )
    if position := ", ".join(filter(None, parts)):
        yield f"{position} ({reported} ago)" if reported else position
    parts = (
        f"growth {short(growth)}" if growth is not None else "",
        progress["state"],
        f"uses {cpus(round(1000 * cores))}" if cores is not None else "",
        "",
    )
    if growing := ", ".join(filter(None, parts)):
        yield growing


def steps(progress: Mapping[str, Any], *, separator: str = "/") -> str:
    """Return the step, with the total if known, as 40/100."""
    if progress["step"] is None:
        return ""
    total = "" if progress["totalSteps"] is None else f"{separator}{progress['totalSteps']}"
    return f"{progress['step']}{total}"


async def read_log(
    client: Client, job: TrainingJob, pods: Iterable[Pod], *, regex: str
) -> dict[str, Any]:
    """Return the progress that kfext recognises in a job's log.

    It is the log of the first pod with recognised lines, else of the first pod. `regex` is tried in
    place of the job's setting. Raises UserError, ApiError.
    """
    expression, first = _expression(job, regex), None
    for pod in printing_pods(job, pods):
        log = PodLog(client, pod.namespace, pod.name, printing_container(job, pod))
        try:
            lines = await log.read()
        except BadRequest:
            continue  # its container has not started
        report = recognise(job, pod, lines, expression=expression, now=time.time())
        if report["recognised"] or report["progress"]["step"] is not None:
            return report
        first = first or report
    if first is None:
        raise UserError(f"{job.title} has no pod yet with a started {job.kind.container} container")
    return first


def _expression(job: TrainingJob, regex: str) -> str:
    """Return the expression to search for; empty for kfext's own rules."""
    written = f"{STDOUT}:{regex}" if regex else job.annotations.get(names.METRICS, "auto")
    source = parse_setting(names.METRICS, written, place="--regex" if regex else names.METRICS)
    return source.pattern if isinstance(source, MetricsSource) else ""


def recognise(
    job: TrainingJob, pod: Pod, lines: Sequence[LogLine], *, expression: str, now: float
) -> dict[str, Any]:
    """Return the series and the progress that kfext recognises in the lines of a log."""
    followed, series = Followed(expression), []
    course = followed.course
    for line in lines:
        for reading in followed.read_lines([line], now=Moment(wall=now, monotonic=now)):
            stamp = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="seconds")
            measures = {
                name: value if math.isfinite(value) else None for name, value in reading.measures
            }
            series.append(
                {
                    "time": stamp,
                    "step": course.progress().step,
                    "metrics": measures,
                    "line": visible(line.text)[:_WIDEST],
                }
            )
    progress, gained = course.progress(), None
    if course.better and progress.at is not None:
        gained = progress_of(course.windows, course.better, now=progress.at)
    return {
        "pod": pod.name,
        "container": printing_container(job, pod),
        "expression": expression,
        "lines": len(lines),
        "recognised": len(series),
        "better": course.better.value if course.better else "",
        "diverged": course.diverged_since is not None,
        "gained": gained,
        "progress": _values(Reported(progress), now=now),
        "series": series,
    }


def log_lines(log: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of `explain` about the progress that `recognise` returned."""
    method = "by the expression" if log["expression"] else "without a setting"
    words = [
        f"{log['recognised']} of {log['lines']} lines of {log['pod']} "
        f"({log['container']}) recognised {method}"
    ]
    words += progress_lines({**log["progress"], "ageSeconds": None})
    if log["better"]:
        words.append(f"{log['better']} is better")
    if log["diverged"]:
        words.append("the last value is not a number")
    if log["gained"] is not None:
        words.append(f"last {INTERVAL:.0f} s: {short(log['gained'])} of the progress of the first")
    if not log["recognised"]:
        words.append("nothing in it looks like progress; try --regex, then set kfext.dev/metrics")
    yield from (f"  {'log':<8} {line}" for line in words)
    if log["series"]:
        yield from columns(_SERIES, log["series"][-_MAX_LINES:], indent=2)
