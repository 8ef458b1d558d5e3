"""`kubectl kfext top`: how far the jobs are, how they grow, and what they use."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kfext.cli.cluster import ClusterOptions, Raw, all_plans
from kfext.cli.companion import is_resized
from kfext.cli.output import age, printed, table
from kfext.cli.progress import progress_in, short, steps
from kfext.model.tolerant import mapping, text
from kfext.names import FINISHED

WATCH_SECONDS = 5.0
"""Time between two tables; a job's progress is written every 10 s at most."""
_HEAD = (
    *("JOB", "PHASE", "STEP", "METRIC", "VALUE", "GROWTH", "STATE", "CPU", "WORKERS", "LEFT"),
    "REPORTED",
)
_RESIZED = "*"
"""Marks the use of a job of which kfext changed CPU limits."""
_BY: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "growth": lambda line: _negative(_of(line, "growth")),
    "cpu": lambda line: _negative(_of(line, "cpuCores")),
    "workers": lambda line: _negative(line["workers"]),
    "left": lambda line: _of(line, "secondsLeft"),
}
ORDERS = tuple(_BY)
"""What jobs can be sorted by: the largest first, but of the times left the shortest."""


async def show_top(
    *,
    all_namespaces: bool,
    sort: str,
    output: str,
    watch: bool,
    cluster: ClusterOptions,
    show: Callable[[str], None],
) -> None:
    """Show the jobs as text, json or yaml, and with `watch` again and again.

    Raises UserError, ApiError, NoAccess.
    """
    namespace = "" if all_namespaces else cluster.in_namespace()
    async with cluster.connect() as client:
        while True:
            # What has ended neither grows nor uses anything.
            plans = await all_plans(
                client, namespace=namespace, fieldSelector=f"status.phase!={FINISHED}"
            )
            lines = top_of(plans, sort=sort, now=time.time())
            show(written(lines, output=output, namespace=namespace))
            if not watch:
                return
            await asyncio.sleep(WATCH_SECONDS)


def top_of(plans: Iterable[Raw], *, sort: str, now: float) -> list[dict[str, Any]]:
    """Return what is shown of the job of each TrainingPlan; those without progress come last.

    `sort` is one of ORDERS. `now` is in epoch seconds.
    """
    lines = []
    for plan in plans:
        job, status = mapping(mapping(plan.get("spec")).get("job")), mapping(plan.get("status"))
        workers = status.get("workers")
        lines.append(
            {
                "kind": text(job.get("kind")),
                "namespace": text(mapping(plan.get("metadata")).get("namespace")),
                "name": text(job.get("name")),
                "phase": text(status.get("phase")),
                "workers": workers if type(workers) is int else None,
                "resized": is_resized(status),
                "progress": progress_in(status, now=now),
            }
        )
    return sorted(lines, key=lambda line: _turn(line, _BY[sort](line)))


def written(lines: Sequence[dict[str, Any]], *, output: str, namespace: str) -> str:
    """Return the jobs as text, json or yaml; `namespace` is empty for the whole cluster."""
    return printed(lines, output=output, words=lambda: in_words(lines, namespace=namespace))


def in_words(lines: Sequence[Mapping[str, Any]], *, namespace: str) -> str:
    """Return the jobs as a table."""
    if not lines:
        where = f" in namespace {namespace}" if namespace else ""
        return f"kfext handles no job that runs or waits{where}\n"
    return "\n".join(table([_HEAD, *map(_row, lines)])) + "\n"


def _turn(line: Mapping[str, Any], measure: float | None) -> tuple[Any, ...]:
    """Return the place of a job among the others: whatever is not known comes last."""
    return (
        line["progress"] is None,
        measure is None,
        measure or 0.0,
        (line["namespace"], line["name"], line["kind"]),
    )


def _of(line: Mapping[str, Any], name: str) -> float | None:
    progress = line["progress"]
    return progress[name] if progress is not None else None


def _negative(number: float | None) -> float | None:
    return None if number is None else -number


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    job = f"{line['kind']} {line['namespace']}/{line['name']}"
    workers = "" if line["workers"] is None else str(line["workers"])
    progress, resized = line["progress"], _RESIZED if line["resized"] else ""
    if progress is None:
        return (job, line["phase"], *("",) * 5, resized, workers, "", "")
    cores, left, reported = (progress[name] for name in ("cpuCores", "secondsLeft", "ageSeconds"))
    return (
        job,
        line["phase"],
        steps(progress),
        progress["metric"],
        short(progress["value"]),
        short(progress["growth"]),
        progress["state"],
        resized if cores is None else f"{cores:g}{resized}",
        workers,
        "" if left is None else age(left),
        "" if reported is None else age(reported),
    )
