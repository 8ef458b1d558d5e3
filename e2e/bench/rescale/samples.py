"""What is seen of the cluster at one moment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from e2e.bench.rescale.cases import GANG, TRAIN
from e2e.harness.jobs import specs
from e2e.harness.look import ended
from kfext import names

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; `worker`: its index among those that may be taken, None of one that is not."""

    worker: int | None
    bound: bool
    runs: bool
    ends: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """One look, `at` seconds after the run began.

    `size`: workers that are written in the job, None while it is not there; `asked`: the number of
    the last checkpoint that it was asked for; `reason`: what kfext shows of its size.
    `lines`: what it has printed since the last look. `ended`: how the job has ended, empty if it
    has not.
    """

    at: float
    size: int | None = None
    asked: int = 0
    reason: str = ""
    own: tuple[Pod, ...] = ()
    gang: tuple[Pod, ...] = ()
    lines: tuple[str, ...] = ()
    ended: str = ""

    @property
    def workers(self) -> tuple[Pod, ...]:
        """The workers of the job."""
        return tuple(pod for pod in self.own if pod.worker is not None)

    @property
    def steps(self) -> bool:
        """Whether the job has done a step since the last look."""
        return any(line.startswith("step ") for line in self.lines)


def sample(
    at: float,
    *,
    job: Object | None,
    view: Object,
    pods: Iterable[Object],
    lines: Iterable[str],
) -> Sample:
    """Return a look from objects of the API server; `view`: the TrainingPlan, empty without one."""
    by_job: dict[str, list[Object]] = {TRAIN: [], GANG: []}
    for body in pods:
        by_job.setdefault(_labels(body).get(names.JOB_NAME, ""), []).append(body)
    conditions = view.get("status", {}).get("conditions") or []
    requests = (
        body["metadata"].get("annotations", {}).get(names.CHECKPOINT_REQUEST, "0")
        for body in by_job[TRAIN]
    )
    return Sample(
        at,
        size=_size(job) if job else None,
        asked=max(map(int, requests), default=0),
        reason=next((one["reason"] for one in conditions if one["type"] == names.SCALED), ""),
        own=tuple(map(_pod, by_job[TRAIN])),
        gang=tuple(map(_pod, by_job[GANG])),
        lines=tuple(lines),
        ended=ended(job) if job else "",
    )


def _size(job: Object) -> int:
    found = specs(job)
    return int(found["Worker"]["replicas"]) + ("Master" in found)


def _pod(body: Object) -> Pod:
    labels = _labels(body)
    of_workers = labels.get(names.REPLICA_TYPE, "").lower() == "worker"
    return Pod(
        worker=int(labels[names.REPLICA_INDEX]) if of_workers else None,
        bound=bool(body["spec"].get("nodeName")),
        runs=body["status"].get("phase") == "Running",
        ends="deletionTimestamp" in body["metadata"],
    )


def _labels(body: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = body["metadata"].get("labels", {})
    return found
