"""Samples of the cluster, taken several times a second."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.bench.companion.site import Pods
from e2e.bench.rescale.cases import GANG, GANG_KIND, TRAIN
from e2e.bench.store import SpoiledError
from e2e.harness.elastic_jobs import journal
from e2e.harness.jobs import ended, jobs_path, specs
from e2e.testbed.api import ApiError
from kfext import names

Object = dict[str, Any]
_POLL_SECONDS = 0.25
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. `worker_index`: None means that it is not a worker, so it is never removed."""

    worker_index: int | None
    bound: bool
    runs: bool
    ends: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the job and the gang, `at` seconds after the run began.

    `size`: the number of workers in the job's spec, or None before the job exists.
    `checkpoint_request`: the number of the last checkpoint request.
    `reason`: the reason of the condition Scaled.
    `own`: the job's pods. `lines`: its output since the previous sample.
    `ended`: its outcome, or empty.
    """

    at: float
    size: int | None = None
    checkpoint_request: int = 0
    reason: str = ""
    own: tuple[Pod, ...] = ()
    gang: tuple[Pod, ...] = ()
    lines: tuple[str, ...] = ()
    ended: str = ""

    @property
    def workers(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.own if pod.worker_index is not None)

    @property
    def steps(self) -> bool:
        return any(line.startswith("step ") for line in self.lines)


def sample(
    at: float, *, job: Object | None, view: Object, pods: Iterable[Object], lines: Iterable[str]
) -> Sample:
    """Return a sample. `view`: the TrainingPlan; empty means that there is none."""
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
        checkpoint_request=max(map(int, requests), default=0),
        reason=next(
            (condition["reason"] for condition in conditions if condition["type"] == names.SCALED),
            "",
        ),
        own=tuple(map(_pod, by_job[TRAIN])),
        gang=tuple(map(_pod, by_job[GANG])),
        lines=tuple(lines),
        ended=ended(job) if job else "",
    )


def _size(job: Object) -> int:
    replicas = specs(job)
    return int(replicas["Worker"]["replicas"]) + ("Master" in replicas)


def _pod(body: Object) -> Pod:
    labels = _labels(body)
    is_worker = labels.get(names.REPLICA_TYPE, "").lower() == "worker"
    return Pod(
        worker_index=int(labels[names.REPLICA_INDEX]) if is_worker else None,
        bound=bool(body["spec"].get("nodeName")),
        runs=body["status"].get("phase") == "Running",
        ends="deletionTimestamp" in body["metadata"],
    )


def _labels(body: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = body["metadata"].get("labels", {})
    return labels


class Watch:
    """Takes the samples of a run. `kind`: the job's kind; `folder`: the folder of its journal."""

    def __init__(self, pods: Pods, kind: str, folder: Path) -> None:
        self.samples: list[Sample] = []
        self.lines: list[str] = []
        self._pods, self._folder = pods, folder
        plans = f"/apis/kfext.dev/v1alpha1/namespaces/{pods.namespace}/trainingplans"
        self._kind, self._plan = kind, f"{plans}/{kind.lower()}-{TRAIN}"
        self._began = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._began

    def poll(self) -> Sample:
        began = self.now()
        body = self._find(jobs_path(self._pods.namespace, self._kind, TRAIN))
        view = self._find(self._plan)
        new = journal(self._folder)[len(self.lines) :]
        self.lines += new
        bodies = self._pods.bodies()
        latest = sample(self.now(), job=body, view=view or {}, pods=bodies, lines=new)
        self.samples.append(latest)
        if latest.ended == "Failed":
            raise SpoiledError("the job failed")
        time.sleep(max(0.0, _POLL_SECONDS - (self.now() - began)))
        return latest

    def until(self, condition: Callable[[Sample], bool], *, what: str, seconds: float) -> None:
        """Poll until a condition holds. Raises SpoiledError if it does not hold in time."""
        deadline = self.now() + seconds
        while not condition(self.poll()):
            if self.now() > deadline:
                last = self.samples[-1]
                raise SpoiledError(f"in {seconds:.0f} s it was not seen that {what}: {last}")

    def poll_for(self, seconds: float) -> None:
        until = self.now() + seconds
        while self.now() < until:
            self.poll()

    def gang_has_ended(self) -> bool:
        """Return whether the gang has succeeded. Raises SpoiledError if it has failed."""
        body = self._find(jobs_path(self._pods.namespace, GANG_KIND, GANG)) or {}
        if (outcome := ended(body)) == "Failed":
            raise SpoiledError(f"{GANG} failed")
        return outcome == "Succeeded"

    def _find(self, path: str) -> Object | None:
        try:
            body: Object = self._pods.bed.api.get(path)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return body
