"""`kubectl kfext queue` and `top`: the jobs that wait, and the jobs that run."""

import asyncio
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import click

from kfext.cli.cluster import (
    ClusterOptions,
    Raw,
    all_jobs,
    all_namespaces_option,
    all_plans,
    cluster_options,
    read_classes,
)
from kfext.cli.output import (
    Columns,
    columns,
    crop,
    format_output,
    integer,
    job_of,
    output_option,
    short,
    table,
)
from kfext.cli.progress import NO_PROGRESS, STOPPED, progress_in, shows, steps
from kfext.core.queue.priority import Classes, priority_class
from kfext.core.words import CLAUSE, age
from kfext.errors import Forbidden, NotFound, Unavailable, UserError
from kfext.kube.client import Client
from kfext.model.job import TrainingJob, planned_uid
from kfext.model.quantity import PODS, Resources, amount_text
from kfext.model.tolerant import mapping, text
from kfext.names import PROGRESSING, REASON_STALLED, RESIZED

_QUEUE: Columns = {
    "PRIORITY": lambda line: f"{_text(line['priority']) or '?'} {line['priorityClass']}".rstrip(),
    "AGE": lambda line: age(line["ageSeconds"]),
    "PODS": lambda line: _out_of(line["minimumPods"], line["pods"]) or "?",
    "ASKS": lambda line: "?" if line["pods"] is None else ", ".join(line["asks"]) or "nothing",
    "JOB": job_of,
    "STARTS": lambda line: text(line["expectedStart"].get("summary")),
    "REASON": lambda line: line["reason"],
}
_CLAUSES = 2
"""The most clauses of a message in the list: the job's needs, and the missing capacity."""
_NO_PLAN = "no TrainingPlan shows why it waits: is the controller running?"
_RUNNING = ",".join(f"status.phase!={phase}" for phase in STOPPED)
WATCH_SECONDS = 5.0
"""Time between two tables; the progress of a job is written at most every 10 s."""
_TOP: Columns = {
    "JOB": job_of,
    "PHASE": lambda line: line["phase"],
    "STEP": lambda line: steps(line["progress"]),
    "METRIC": lambda line: line["progress"]["metric"],
    "VALUE": lambda line: short(line["progress"]["value"]),
    "GROWTH": lambda line: short(line["progress"]["growth"]),
    "STATE": lambda line: REASON_STALLED if line["stalled"] else line["progress"]["state"],
    # The star marks CPU that kfext changed.
    "CPU": lambda line: short(line["progress"]["cpuCores"]) + "*" * line["resized"],
    "WORKERS": lambda line: _out_of(line["workers"], line["requestedWorkers"]),
    "LEFT": lambda line: age(line["progress"]["secondsLeft"]),
    "REPORTED": lambda line: age(line["progress"]["ageSeconds"]),
}
_SORT_VALUES: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "growth": lambda line: _in_progress(line, "growth"),
    "cpu": lambda line: _in_progress(line, "cpuCores"),
    "workers": lambda line: line["workers"],
    "left": lambda line: _in_progress(line, "secondsLeft"),
}
ORDERS = tuple(_SORT_VALUES)
"""The values of --sort: the largest value is first, but for `left` the shortest time."""


@click.command()
@all_namespaces_option
@output_option
@cluster_options
def queue(*, all_namespaces: bool, output: str, cluster: ClusterOptions) -> None:
    """List the waiting jobs in the order of the queue, each with its reason."""
    namespace = "" if all_namespaces else cluster.in_namespace()
    lines, note = asyncio.run(_queue(namespace, cluster))
    if note:
        click.echo(note, err=True)
    shown = format_output(
        lines, output=output, text=lambda: queue_lines(lines, namespace=namespace)
    )
    click.echo(shown, nl=False)


async def _queue(namespace: str, cluster: ClusterOptions) -> tuple[list[dict[str, Any]], str]:
    """Return the queue, and a note for stderr. An empty `namespace` stands for the whole cluster.

    Raises UserError, ApiError, NoAccess.
    """
    notes, classes = [], None
    async with cluster.connect() as client:
        jobs = [job for job, _ in await all_jobs(client, namespace=namespace, kind=None)]
        statuses = await _statuses(client, namespace=namespace)
        try:
            classes = await read_classes(client)
        except Forbidden:
            notes.append(
                "note: you may not list priorityclasses, so the numbers of priorities are missing"
            )
    if any(job.in_queue and _is_unknown(job) for job in jobs):
        notes.append(
            "note: some jobs show no pods: they have no JobSet yet, or you may not list jobsets"
        )
    lines = queue_of(jobs, statuses=statuses, classes=classes, now=time.time())
    return lines, "\n".join(notes)


def _is_unknown(job: TrainingJob) -> bool:
    """Return whether the templates of a job, and so its pods and priority, are unknown."""
    return bool(job.kind.rendered) and not job.groups


def queue_of(
    jobs: Sequence[TrainingJob],
    *,
    statuses: Mapping[str, Mapping[str, Any]],
    classes: Classes | None,
    now: float,
) -> list[dict[str, Any]]:
    """Return the waiting jobs in order.

    `statuses`: the statuses of the TrainingPlans, by the uid of the job.
    `classes`: the priority classes; None means that the caller may not list them: then the lines
        have only the names of the priorities. `now`: in epoch seconds.
    """
    lines = []
    for job in in_order(jobs, statuses=statuses, classes=classes or {}):
        status = statuses.get(job.uid) or {"message": _NO_PLAN}
        unknown, priority = _is_unknown(job), priority_class(job, classes or {})
        minimum = integer(status.get("minimumWorkers"))
        lines.append(
            {
                "kind": job.kind.name,
                "namespace": job.namespace,
                "name": job.name,
                "priorityClass": priority.name
                if classes is not None
                else next(iter(job.priority_classes), ""),
                "priority": None if unknown or classes is None else priority.value,
                "ageSeconds": max(int(now - job.created), 0),
                "pods": None if unknown else job.pods,
                "minimumPods": None
                if unknown or minimum is None
                else job.pods - job.training_pods + minimum,
                "asks": amounts(job.requests),
                "expectedStart": dict(mapping(status.get("expectedStart"))),
                "reason": text(status.get("reason")),
                "message": text(status.get("message")),
            }
        )
    return lines


def amounts(requests: Resources) -> list[str]:
    """Return the requests of a job in words, sorted by the name of the resource."""
    items = sorted(requests.items())
    return [amount_text(name, number) for name, number in items if name != PODS]


def in_order(
    jobs: Iterable[TrainingJob], *, statuses: Mapping[str, Mapping[str, Any]], classes: Classes
) -> list[TrainingJob]:
    """Return the waiting jobs in order; new jobs without a position are last.

    A position may be some seconds old, so priority counts before it, unless the priority of any
    job is unknown.

    `statuses`: the statuses of the TrainingPlans, by the uid of the job.
    """
    waiting = [job for job in jobs if job.in_queue]
    all_known = not any(map(_is_unknown, waiting))

    def position(job: TrainingJob) -> tuple[int, float, float, str, str, str]:
        priority = priority_class(job, classes).value if all_known else 0
        ahead = statuses.get(job.uid, {}).get("ahead")
        reported = ahead if type(ahead) is int else math.inf
        return (-priority, reported, job.created, job.namespace, job.name, job.kind.name)

    return sorted(waiting, key=position)


async def ahead_of(client: Client, job: TrainingJob) -> list[str]:
    """Return the names of the jobs ahead of a job, or nothing if the caller may not see them all.

    They are not in its TrainingPlan, which names no job of another namespace. Raises ApiError.
    """
    try:
        jobs = [other for other, _ in await all_jobs(client, namespace="", kind=None)]
        statuses = await _statuses(client, namespace="")
        waiting = in_order(jobs, statuses=statuses, classes=await read_classes(client))
    except (UserError, Forbidden, NotFound):
        return []
    uids = [other.uid for other in waiting]
    return [other.title for other in waiting[: uids.index(job.uid)]] if job.uid in uids else []


async def _statuses(client: Client, *, namespace: str) -> dict[str, Mapping[str, Any]]:
    plans = await all_plans(client, namespace=namespace)
    return {planned_uid(plan): mapping(plan.get("status")) for plan in plans}


def queue_lines(lines: Sequence[Mapping[str, Any]], *, namespace: str) -> Iterator[str]:
    """Yield the queue as text; an empty `namespace` adds the positions in the whole queue."""
    if not lines:
        yield f"no job waits in namespace {namespace}" if namespace else "no job waits"
        return
    numbers = {id(line): str(number) for number, line in enumerate(lines, 1)}
    position: Columns = {} if namespace else {"#": lambda line: numbers[id(line)]}
    head, *rows = columns({**position, **_QUEUE}, lines)
    yield head
    for row, line in zip(rows, lines, strict=True):
        yield row
        yield from (
            f"    {clause}" for clause in line["message"].split(CLAUSE)[:_CLAUSES] if clause
        )


@click.command()
@all_namespaces_option
@click.option(
    "--sort",
    type=click.Choice(ORDERS),
    default="growth",
    show_default=True,
    help="Largest first; left: soonest end first.",
)
@click.option("--watch", is_flag=True, help=f"Every {WATCH_SECONDS:.0f} seconds, until Ctrl-C.")
@output_option
@cluster_options
def top(
    *, all_namespaces: bool, sort: str, watch: bool, output: str, cluster: ClusterOptions
) -> None:
    """List the running jobs with their progress, growth and CPU use.

    Jobs with unknown progress come last; `queue` lists the waiting jobs. You need the permission to
    list TrainingPlans.
    """
    if watch and output != "text":
        raise click.UsageError("--watch shows a table; omit -o")
    namespace = "" if all_namespaces else cluster.in_namespace()

    async def show() -> None:
        plans: Iterable[Raw] | None = None
        async with cluster.connect() as client:
            while True:
                try:
                    plans = await all_plans(client, namespace=namespace, fieldSelector=_RUNNING)
                except Unavailable:
                    if plans is None:
                        raise
                lines = top_of(plans, sort=sort, now=time.time())
                shown = format_output(
                    lines, output=output, text=partial(top_lines, lines, namespace)
                )
                if not watch:
                    return click.echo(shown, nl=False)
                _refresh(shown)
                await asyncio.sleep(WATCH_SECONDS)

    with suppress(KeyboardInterrupt) if watch else nullcontext():
        asyncio.run(show())


def _refresh(shown: str) -> None:
    """Replace the table on a terminal; elsewhere, print below it."""
    if sys.stdout.isatty():
        click.clear()
        shown = crop(shown, shutil.get_terminal_size())
    click.echo(shown)


def top_of(plans: Iterable[Raw], *, sort: str, now: float) -> list[dict[str, Any]]:
    """Return the data of each TrainingPlan's job, sorted; jobs without progress are last.

    `sort` is one of ORDERS. `now` is in epoch seconds.
    """
    lines = (top_line(plan, now=now) for plan in plans)
    return sorted(
        lines, key=lambda line: _key(line, _SORT_VALUES[sort](line), ascending=sort == "left")
    )


def top_line(plan: Raw, *, now: float) -> dict[str, Any]:
    """Return the data of a TrainingPlan's job. `now` is in epoch seconds."""
    job, status = mapping(mapping(plan.get("spec")).get("job")), mapping(plan.get("status"))
    return {
        "kind": text(job.get("kind")),
        "namespace": text(mapping(plan.get("metadata")).get("namespace")),
        "name": text(job.get("name")),
        "phase": text(status.get("phase")),
        "workers": integer(status.get("workers")),
        "requestedWorkers": integer(status.get("requestedWorkers")),
        "resized": shows(status, RESIZED, "True"),
        "stalled": shows(status, PROGRESSING, "False"),
        "progress": progress_in(status, now=now),
    }


def top_cells(line: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells of a job in the table of `top`, by column."""
    known = {**line, "progress": line["progress"] or NO_PROGRESS}
    return {head: cell(known) for head, cell in _TOP.items()}


def top_lines(lines: Sequence[Mapping[str, Any]], namespace: str) -> list[str]:
    """Return the jobs as a table; `namespace` is empty for the whole cluster."""
    if not lines:
        return [
            "kfext handles no running job" + (f" in namespace {namespace}" if namespace else "")
        ]
    return table([*_TOP], [[*top_cells(line).values()] for line in lines])


def _key(line: Mapping[str, Any], value: float | None, *, ascending: bool) -> tuple[Any, ...]:
    """Return the sort key of a job: unknown values are last."""
    return (
        line["progress"] is None,
        value is None,
        (value or 0.0) if ascending else -(value or 0.0),
        (line["namespace"], line["name"], line["kind"]),
    )


def _in_progress(line: Mapping[str, Any], name: str) -> float | None:
    progress = line["progress"]
    return progress[name] if progress is not None else None


def _out_of(number: int | None, whole: int | None) -> str:
    """Return `3 of 5`, or a number alone if the other is unknown or not larger."""
    fewer = number is not None and whole is not None and number < whole
    return f"{number} of {whole}" if fewer else _text(whole if number is None else number)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
