"""`kubectl kfext metrics`: what kfext recognises in the log of a job, with the caller's rights."""

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from kfext import names
from kfext.cli.cluster import ClusterOptions, cluster_options, find_job, kind_option, pods_of
from kfext.cli.output import output_option, printed, short, table
from kfext.core.progress.course import Course
from kfext.core.progress.followed import INTERVAL
from kfext.core.progress.growth import progress_of
from kfext.core.progress.lines import Line, read_with
from kfext.core.progress.visible import visible
from kfext.core.settings.table import parse_setting
from kfext.core.settings.values import STDOUT, MetricsSource
from kfext.errors import BadRequest, UserError
from kfext.kube.client import Client
from kfext.kube.pod_log import PodLog
from kfext.model.job import TrainingJob
from kfext.model.log_line import LogLine
from kfext.model.pod import Pod
from kfext.state.printers import printing_pods

_SHOWN = 10
_WIDEST = 60


@dataclass(frozen=True, slots=True)
class Reading:
    """The log of one pod: all lines, and those that say something of the training."""

    job: TrainingJob
    pod: Pod
    lines: tuple[LogLine, ...]
    found: tuple[tuple[LogLine, Line], ...]


@click.command()
@click.argument("job")
@kind_option
@click.option("--regex", default="", help="Try this RE2 expression with a group named `value`.")
@output_option
@cluster_options
def metrics(
    *, job: str, kind: str | None, regex: str, output: str, cluster: ClusterOptions
) -> None:
    """Show the progress that kfext recognises in the log of JOB.

    Reads the newest lines of rank 0 with your own rights; nothing is stored.
    """
    shown = asyncio.run(_metrics(job, kind=kind, regex=regex, cluster=cluster))
    click.echo(printed(shown, output=output, words=lambda: in_words(shown)), nl=False)


async def _metrics(
    name: str, *, kind: str | None, regex: str, cluster: ClusterOptions
) -> dict[str, Any]:
    """Return what the log of a job shows; `regex` is tried in place of the job's setting.

    Raises UserError, ApiError, NoAccess.
    """
    namespace = cluster.in_namespace()
    async with cluster.connect() as client:
        job, _ = await find_job(client, name=name, namespace=namespace, kind=kind)
        expression = _expression(job, regex)
        pods = await pods_of(client, job)
        reading = await _first_that_prints(client, job, pods, expression)
    return described(reading, expression=expression, now=time.time())


def _expression(job: TrainingJob, regex: str) -> str:
    """Return the expression to search for, empty for what kfext recognises by itself."""
    written = f"{STDOUT}:{regex}" if regex else job.annotations.get(names.METRICS, "auto")
    source = parse_setting(names.METRICS, written, place="--regex" if regex else names.METRICS)
    return source.pattern if isinstance(source, MetricsSource) else ""


async def _first_that_prints(
    client: Client, job: TrainingJob, pods: Iterable[Pod], expression: str
) -> Reading:
    """Return the log of the first pod that says something, else of the first. Raises UserError."""
    first = None
    for pod in printing_pods(job, pods):
        log = PodLog(client, pod.namespace, pod.name, job.kind.container)
        try:
            reading = read(job, pod, await log.read(), expression)
        except BadRequest:
            continue  # its container has not started
        if reading.found:
            return reading
        first = first or reading
    if first is None:
        raise UserError(f"{job.title} has no pod yet whose container {job.kind.container} prints")
    return first


def read(job: TrainingJob, pod: Pod, lines: Sequence[LogLine], expression: str) -> Reading:
    """Return what the lines of a pod's log say."""
    found = []
    for line in lines:
        said = read_with(line.text, expression)
        if said is not None:
            found.append((line, said))
    return Reading(job, pod, tuple(lines), tuple(found))


def described(reading: Reading, *, expression: str, now: float) -> dict[str, Any]:
    """Return the reading as values: what matched, the series, and where the job is."""
    course, series = Course(INTERVAL), []
    for line, said in reading.found:
        course.take(said, at=line.at, now=now)
        if said.measures:
            progress = course.progress()
            series.append(
                {
                    "time": datetime.fromtimestamp(line.at, UTC).isoformat(timespec="seconds"),
                    "step": progress.step,
                    "metrics": {name: _json(value) for name, value in said.measures},
                    "line": visible(line.text)[:_WIDEST],
                }
            )
    progress, gained = course.progress(), None
    if course.better and progress.at is not None:
        gained = progress_of(course.windows, course.better, now=progress.at)
    return {
        "job": reading.job.title,
        "pod": reading.pod.name,
        "container": reading.job.kind.container,
        "expression": expression,
        "lines": len(reading.lines),
        "recognised": len(series),
        "metric": progress.metric,
        "better": course.better.value if course.better else "",
        "value": progress.value,
        "diverged": course.diverged,
        "progress": gained,
        "step": progress.step,
        "total": progress.total,
        "stepsPerSecond": progress.rate,
        "secondsLeft": progress.left,
        "series": series,
    }


def in_words(shown: dict[str, Any]) -> str:
    """Return the values for a person."""
    how = "by the expression" if shown["expression"] else "without a setting"
    lines = [
        "{job}: pod {pod}, container {container}".format_map(shown),
        f"  recognised  {shown['recognised']} of {shown['lines']} lines, {how}",
    ]
    if shown["metric"]:
        way = f", {shown['better']} is better" if shown["better"] else ""
        value = "not a number" if shown["diverged"] else _short(shown["value"])
        lines.append(f"  metric      {shown['metric']} {value}{way}")
    if shown["progress"] is not None:
        lines.append(
            f"  progress    {_short(shown['progress'])} of its first {INTERVAL:.0f} s in its last"
        )
    if shown["step"] is not None:
        of = f" of {shown['total']}" if shown["total"] is not None else ""
        rate = f", {_short(shown['stepsPerSecond'])} a second" if shown["stepsPerSecond"] else ""
        left = f", {shown['secondsLeft']:.0f} s left" if shown["secondsLeft"] is not None else ""
        lines.append(f"  step        {shown['step']}{of}{rate}{left}")
    if not shown["recognised"]:
        lines.append("  nothing in it looks like progress; try --regex, then set kfext.dev/metrics")
    rows = [
        (
            one["time"][11:19],
            "" if one["step"] is None else str(one["step"]),
            " ".join(f"{name}={_short(value)}" for name, value in one["metrics"].items())[:_WIDEST],
            one["line"],
        )
        for one in shown["series"][-_SHOWN:]
    ]
    if rows:
        lines += ["", *table(("TIME", "STEP", "METRICS", "LINE"), rows)]
    return "\n".join(lines) + "\n"


def _short(value: float | None) -> str:
    return short(value) or "not a number"


def _json(value: float) -> float | None:
    """Return a number that JSON has, None for one that is none."""
    return value if math.isfinite(value) else None
