"""A trace of the jobs of a real cluster: the CSV that `kfext simulate` reads, and its nodes.

The duration of a job is known once it has ended. A job that waits or runs has the median duration
of the ended jobs of its series; if none has ended, its duration is unknown and it is omitted.
"""

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from statistics import median

from kfext.core.settings.table import parsed
from kfext.errors import UserError
from kfext.model.job import TrainingJob
from kfext.model.node import Node
from kfext.model.quantity import CPU, MEMORY
from kfext.names import ELASTIC, NATIVE_GPU
from kfext.sim.job_table import COLUMNS, MIN_CPU
from kfext.sim.jobs import PYTORCH, TENSORFLOW
from kfext.sim.nodes import GPU_TYPE, MIB, NodeSize, encode_nodes

_LONGEST_NAME = 46
"""The most characters of a name without its number; 52 are allowed with the number."""
MIN_KNOWN = 0.5
"""A trace needs at least this fraction of jobs with known durations."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs as a CSV, and the nodes as in --nodes.

    `ended`, `likely`: the numbers of ended jobs, and of others with the duration of their series.
    `unknown`: the number of omitted jobs. `hours`: from the creation of the first job to the last.
    """

    jobs: str
    nodes: str
    ended: int
    likely: int
    unknown: int
    hours: float


def trace_of(jobs: Sequence[TrainingJob], nodes: Iterable[Node]) -> Trace:
    """Return the trace of a cluster. Raises UserError if too few durations are known."""
    durations = {job.uid: duration for job in jobs if (duration := _duration(job)) is not None}
    series: dict[str, list[float]] = {}
    for job in jobs:
        if job.uid in durations:
            series.setdefault(job.series, []).append(durations[job.uid])
    likely = {
        job.uid: median(series[job.series])
        for job in jobs
        if job.uid not in durations and job.series in series and not job.finished
    }
    known = sorted(
        (job for job in jobs if job.uid in durations | likely), key=lambda job: job.created
    )
    unknown = len(jobs) - len(known)
    if not jobs:
        raise UserError("there are no jobs: name another namespace, or none for the whole cluster")
    if not known or len(known) < MIN_KNOWN * len(jobs):
        raise UserError(
            f"the durations of {len(known)} of {len(jobs)} jobs are known, and a trace needs half; "
            "a duration is known once a job of the series has ended and still exists"
        )
    return Trace(
        jobs=_csv(known, durations | likely),
        nodes=_nodes(nodes),
        ended=len(durations),
        likely=len(likely),
        unknown=unknown,
        hours=(known[-1].created - known[0].created) / 3600,
    )


def _duration(job: TrainingJob) -> float | None:
    """Return the seconds from the last start of an ended job to its end, or None for unknown.

    Both are whole seconds, so a job may end in the second of its start.
    """
    ends = (job.conditions[type_] for type_ in ("Succeeded", "Failed") if job.has(type_))
    ended = max((condition.since for condition in ends), default=0.0)
    return ended - job.started if 0.0 < job.started <= ended else None


def _csv(jobs: Sequence[TrainingJob], durations: Mapping[str, float]) -> str:
    text = io.StringIO()
    rows = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    rows.writeheader()
    programs: dict[str, int] = {}
    names: set[str] = set()
    for job in jobs:
        names.add(name := _name(job, names))
        program = programs.setdefault(job.series, len(programs))
        row = _row(job, arrives=job.created - jobs[0].created, seconds=durations[job.uid])
        rows.writerow({"name": name, "program": f"program-{program}", **row})
    return text.getvalue()


def _name(job: TrainingJob, taken: Collection[str]) -> str:
    """Return the name of a job, with a number where another namespace has the same name."""
    label = job.name.replace(".", "-")[:_LONGEST_NAME].rstrip("-")
    numbered = (f"{label}-{number}" for number in count(2))
    return next(name for name in chain([label], numbered) if name not in taken)


def _row(job: TrainingJob, *, arrives: float, seconds: float) -> Mapping[str, object]:
    """Return the cells of a job; each of its pods counts like the largest pod."""
    servers = job.pods - job.training_pods
    pods = [group.requests for group in job.groups if group.replicas]
    most = {name: max(pod.get(name, 0) for pod in pods) for name in (CPU, MEMORY, NATIVE_GPU)}
    (range_,) = parsed(ELASTIC, job.annotations.get(ELASTIC)) or (None,)
    selected = {dict(group.constraints.node_selector).get(GPU_TYPE, "") for group in job.groups}
    return {
        "kind": TENSORFLOW if servers else PYTORCH,
        "arrives": round(arrives),
        "workers": job.training_pods,
        "servers": servers or "",
        "min": min(range_.minimum, job.training_pods) if range_ else "",
        "max": max(range_.maximum, job.training_pods) if range_ else "",
        "cpu": max(most[CPU], MIN_CPU),
        "memory": -(-most[MEMORY] // MIB) or "",
        "gpus": most[NATIVE_GPU] or "",
        "gpu_type": selected.pop() if len(selected) == 1 else "",
        "seconds": max(1, round(seconds)),
    }


def _nodes(nodes: Iterable[Node]) -> str:
    sizes = Counter(
        NodeSize(
            cpu=node.allocatable.get(CPU, 0),
            memory=node.allocatable.get(MEMORY, 0),
            gpus=node.allocatable.get(NATIVE_GPU, 0),
            gpu_type=node.labels.get(GPU_TYPE, ""),
        )
        for node in nodes
        if not node.unschedulable
    )
    return encode_nodes(sizes)
