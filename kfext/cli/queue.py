"""`kubectl kfext queue`: the waiting jobs, in the order in which kfext considers them."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kfext.cli.cluster import ClusterOptions, all_jobs, all_plans
from kfext.cli.output import age, printed, table
from kfext.cli.snapshot import read_classes
from kfext.core.queue.order import Classes, priority_class, turn
from kfext.errors import Forbidden, UserError
from kfext.kube.client import Client
from kfext.model.job import TrainingJob, planned_uid
from kfext.model.quantity import PODS, human
from kfext.model.tolerant import mapping, text

_HEAD = ("PRIORITY", "AGE", "PODS", "ASKS", "JOB", "REASON")
_NO_PLAN = "no TrainingPlan shows why it waits: is the controller running?"


async def list_queue(
    *, all_namespaces: bool, output: str, cluster: ClusterOptions
) -> tuple[str, str]:
    """Return the queue as text, json or yaml, and a note for stderr, empty if there is none.

    Raises UserError, ApiError, NoAccess.
    """
    namespace = "" if all_namespaces else cluster.in_namespace()
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
    lines = queue_of(jobs, statuses=statuses, classes=classes, now=time.time())
    return written(lines, output=output, namespace=namespace), note


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
    shown = []
    for row, line in zip(table(rows), (None, *lines), strict=True):
        shown.append(row)
        if line is not None and line["message"]:
            shown.append(f"    {line['message']}")
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
