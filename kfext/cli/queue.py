"""`kubectl kfext queue`: the waiting jobs, in the order in which kfext considers them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from kfext.cli.cluster import (
    ClusterOptions,
    all_jobs,
    all_namespaces_option,
    all_plans,
    cluster_options,
)
from kfext.cli.output import age, output_option, printed, table
from kfext.cli.snapshot import read_classes
from kfext.core.queue.order import Classes, priority_class, turn
from kfext.core.words import CLAUSE
from kfext.errors import Forbidden, UserError
from kfext.kube.client import Client
from kfext.model.job import TrainingJob, planned_uid
from kfext.model.quantity import PODS, human
from kfext.model.tolerant import mapping, text

_HEAD = ("PRIORITY", "AGE", "PODS", "ASKS", "JOB", "REASON")
_CLAUSES = 2
"""Clauses of a message that the list has: what the job needs, and what is missing."""
_NO_PLAN = "no TrainingPlan shows why it waits: is the controller running?"


@click.command()
@all_namespaces_option
@output_option
@cluster_options
def queue(*, all_namespaces: bool, output: str, cluster: ClusterOptions) -> None:
    """List the waiting jobs in the order in which kfext considers them."""
    namespace = "" if all_namespaces else cluster.in_namespace()
    lines, note = asyncio.run(_queue(namespace, cluster))
    if note:
        click.echo(note, err=True)
    click.echo(written(lines, output=output, namespace=namespace), nl=False)


async def _queue(namespace: str, cluster: ClusterOptions) -> tuple[list[dict[str, Any]], str]:
    """Return the queue of a namespace, or of the cluster for an empty one, and a note for stderr.

    Raises UserError, ApiError, NoAccess.
    """
    note, classes = "", None
    async with cluster.connect() as client:
        jobs = [job for job, _ in await all_jobs(client, namespace=namespace, kind=None)]
        statuses = {
            planned_uid(plan): mapping(plan.get("status"))
            for plan in await all_plans(client, namespace=namespace)
        }
        try:
            classes = await read_classes(client)
        except Forbidden:
            note = "note: you may not list priorityclasses, so the order is by age alone"
    return queue_of(jobs, statuses=statuses, classes=classes, now=time.time()), note


def queue_of(
    jobs: Sequence[TrainingJob],
    *,
    statuses: Mapping[str, Mapping[str, Any]],
    classes: Classes | None,
    now: float,
) -> list[dict[str, Any]]:
    """Return what the queue shows of each waiting job, in order.

    `statuses` are those of the TrainingPlans, by the uid of the job. `classes` is None if we may
    not list them; then only the names of priorities are known.
    """
    lines = []
    for job in in_order(jobs, classes=classes or {}):
        status = statuses.get(job.uid) or {"message": _NO_PLAN}
        priority = priority_class(job, classes or {})
        asks = [human(name, number) for name, number in job.requests.items() if name != PODS]
        lines.append(
            {
                "kind": job.kind.name,
                "namespace": job.namespace,
                "name": job.name,
                "priorityClass": priority.name
                if classes is not None
                else next(iter(job.priority_classes), ""),
                "priority": priority.value if classes is not None else None,
                "ageSeconds": max(int(now - job.created), 0),
                "pods": job.pods,
                "asks": asks,
                "reason": text(status.get("reason")),
                "message": text(status.get("message")),
            }
        )
    return lines


def in_order(jobs: Sequence[TrainingJob], *, classes: Classes) -> list[TrainingJob]:
    """Return the waiting ones of some jobs, in order."""
    return sorted((job for job in jobs if job.in_queue), key=lambda job: turn(job, classes))


async def ahead_of(client: Client, job: TrainingJob) -> list[str]:
    """Return the names of the jobs ahead of one in the queue; none if the caller may not see them.

    TrainingPlans and events do not name jobs of other namespaces. Raises ApiError.
    """
    try:
        jobs = [one for one, _ in await all_jobs(client, namespace="", kind=None)]
        queue = in_order(jobs, classes=await read_classes(client))
    except (UserError, Forbidden):
        return []
    uids = [one.uid for one in queue]
    return [one.title for one in queue[: uids.index(job.uid)]] if job.uid in uids else []


def written(lines: Sequence[dict[str, Any]], *, output: str, namespace: str) -> str:
    """Return the queue as text, json or yaml; `namespace` is empty for the whole cluster."""
    return printed(lines, output=output, words=lambda: in_words(lines, namespace=namespace))


def in_words(lines: Sequence[Mapping[str, Any]], *, namespace: str) -> str:
    """Return the queue for a person.

    Its lines are numbered only for the whole cluster, where they are places in the queue.
    """
    if not lines:
        return f"no job waits in namespace {namespace}\n" if namespace else "no job waits\n"
    rows = [_HEAD, *map(_row, lines)]
    if not namespace:
        rows = [(str(number) if number else "#", *row) for number, row in enumerate(rows)]
    first, *others = table(rows[0], rows[1:])
    shown = [first]
    for row, line in zip(others, lines, strict=True):
        shown.append(row)
        shown += [f"    {clause}" for clause in line["message"].split(CLAUSE)[:_CLAUSES] if clause]
    return "\n".join(shown) + "\n"


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    priority = "?" if line["priority"] is None else line["priority"]
    return (
        f"{priority} {line['priorityClass']}".rstrip(),
        age(line["ageSeconds"]),
        str(line["pods"]),
        ", ".join(line["asks"]) or "nothing",
        f"{line['kind']} {line['namespace']}/{line['name']}",
        line["reason"],
    )
