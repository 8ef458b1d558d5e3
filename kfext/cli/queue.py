"""`kubectl kfext queue`: the jobs that wait, in the order in which they are considered."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import yaml

from kfext.cli.cluster import ClusterOptions, all_jobs
from kfext.cli.snapshot import read_classes
from kfext.core.queue import Classes, priority_class, turn
from kfext.errors import UserError
from kfext.kube import paths
from kfext.model.job import TrainingJob
from kfext.model.quantity import PODS, human
from kfext.model.tolerant import mapping, text
from kfext.names import QUEUED

_HEAD = ("#", "PRIORITY", "AGE", "PODS", "ASKS", "JOB", "REASON")


async def list_queue(
    *, all_namespaces: bool, output: str, cluster: ClusterOptions
) -> tuple[str, str]:
    """Return the queue as text, json or yaml, and what is to be said beside it.

    Raises ApiError, NoAccess.
    """
    namespace = "" if all_namespaces else cluster.in_namespace()
    note = ""
    async with cluster.connect() as client:
        jobs = [job for job, _ in await all_jobs(client, namespace=namespace, kind=None)]
        statuses = {
            text(mapping(mapping(plan.get("spec")).get("job")).get("uid")): mapping(
                plan.get("status")
            )
            for plan in await client.list_all(paths.plans(namespace))
        }
        try:
            classes = await read_classes(client)
        except UserError:
            classes = {}
            note = "note: you may not list priorityclasses, so the order is by age alone"
    lines = queue_of(jobs, statuses=statuses, classes=classes, now=time.time())
    return written(lines, output=output), note


def queue_of(
    jobs: Sequence[TrainingJob],
    *,
    statuses: Mapping[str, Mapping[str, Any]],
    classes: Classes,
    now: float,
) -> list[dict[str, Any]]:
    """Return what is to be told of each waiting job; `statuses` of TrainingPlans are by job uid."""
    waiting = [job for job in jobs if statuses.get(job.uid, {}).get("phase") == QUEUED]
    lines = []
    for job in sorted(waiting, key=lambda job: turn(job, classes)):
        status, priority = statuses[job.uid], priority_class(job, classes)
        asks = [human(name, number) for name, number in job.requests.items() if name != PODS]
        lines.append(
            {
                "kind": job.kind.name,
                "namespace": job.namespace,
                "name": job.name,
                "priorityClass": priority.name,
                "priority": priority.value,
                "ageSeconds": max(int(now - job.created), 0),
                "pods": job.pods,
                "asks": asks,
                "reason": text(status.get("reason")),
                "message": text(status.get("message")),
            }
        )
    return lines


def written(lines: Sequence[Mapping[str, Any]], *, output: str) -> str:
    """Return the queue as text, json or yaml."""
    if output == "json":
        return orjson.dumps(lines, option=orjson.OPT_INDENT_2).decode() + "\n"
    if output == "yaml":
        return yaml.safe_dump([dict(line) for line in lines], sort_keys=False, width=10_000)
    if not lines:
        return "no job waits\n"
    rows = [_HEAD, *(_row(number, line) for number, line in enumerate(lines, 1))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    printed = []
    for row, line in zip(rows, (None, *lines), strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        printed.append("  ".join(cells).rstrip())
        if line is not None and line["message"]:
            printed.append(f"    {line['message']}")
    return "\n".join(printed) + "\n"


def _row(number: int, line: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(number),
        f"{line['priority']} {line['priorityClass']}".rstrip(),
        _age(line["ageSeconds"]),
        str(line["pods"]),
        ", ".join(line["asks"]) or "nothing",
        f"{line['kind']} {line['namespace']}/{line['name']}",
        line["reason"],
    )


def _age(seconds: int) -> str:
    """Return an age as kubectl prints it."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
