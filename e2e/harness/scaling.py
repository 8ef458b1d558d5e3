"""An elastic job that fills its nodes, a gang that needs capacity, and kfext's changes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from e2e.harness.faults import Exchange, Match, job_patch, pod_patch, unsuspend_patch
from e2e.harness.jobs import job, specs, workers
from e2e.harness.kube import Object
from e2e.harness.pods import succeed, uids
from e2e.harness.space import Space
from kfext import names

TRAIN, GANG = "train", "gang"
FULL, LEAST, WAITING = 4, 2, 2
"""The pods of the job at its full and at its smallest size, and of the gang; each uses one CPU."""
_CPU = {"cpu": "1"}
_DEADLINE_SECONDS = 300
"""The activeDeadlineSeconds of the gang."""
_PATIENCE_SECONDS = 420.0
"""A job that did not answer a checkpoint request is ineligible for 300 s."""


def size_patch(namespace: str) -> Match:
    """Match kfext's patch of a running job's worker count, which may also suspend the job."""
    matches = job_patch(namespace)
    return lambda exchange: matches(exchange) and _workers(exchange) is not None


def resume_patch(namespace: str) -> Match:
    """Match kfext's patch that resumes the job that it has suspended."""
    matches = unsuspend_patch(namespace)
    return lambda exchange: matches(exchange) and exchange.path.endswith(f"/{TRAIN}")


def request_patch(namespace: str) -> Match:
    """Match kfext's patch that puts a checkpoint request on a pod."""
    matches = pod_patch(namespace)
    return lambda exchange: matches(exchange) and _requests(exchange)


def pin_patch(namespace: str) -> Match:
    """Match kfext's patch that pins a pod to its node."""
    matches = pod_patch(namespace)
    return lambda exchange: matches(exchange) and not _requests(exchange)


def view_patch(namespace: str) -> Match:
    """Match kfext's writes of TrainingPlans."""
    return lambda exchange: exchange.is_write and f"/{namespace}/trainingplans" in exchange.path


def _requests(exchange: Exchange) -> bool:
    return names.CHECKPOINT_REQUEST.partition("/")[2].encode() in exchange.body


def _workers(exchange: Exchange) -> int | None:
    """Return the number of workers in a patch, or None for other patches and for a start."""
    operations = [each for each in json.loads(exchange.body) if each["op"] != "test"]
    written = {each["path"]: each.get("value") for each in operations}
    sizes = [value for path, value in written.items() if path.endswith("/Worker/replicas")]
    return sizes[0] if sizes and written.get("/spec/runPolicy/suspend") is not False else None


def elastic(kind: str, *, sizes: str, dynamic: bool = True) -> Object:
    """Return a job with FULL pods that kfext may scale; one pod of a TFJob is a parameter server.

    `dynamic`: whether the number of a TFJob's workers may change while it runs.
    """
    options: dict[str, Any] = {"each": _CPU, "annotations": {names.ELASTIC: sizes}}
    if kind == "TFJob":
        body = job(TRAIN, {"PS": 1, "Worker": FULL - 1}, kind=kind, **options)
        body["spec"]["enableDynamicWorker"] = dynamic
        return body
    body = workers(TRAIN, FULL, **options)
    for spec in specs(body).values():
        (container,) = spec["template"]["spec"]["containers"]
        container["command"] = ["torchrun", "train.py"]
    return body


@dataclass(frozen=True)
class Scene:
    """A namespace in which an elastic job and a gang need more capacity than it has."""

    space: Space
    kind: str = "PyTorchJob"
    dynamic: bool = True

    def fill(self, *, nodes: int = 1, mode: str = "act", idle: int = 5) -> list[str]:
        """Fill all nodes with the job; return their names.

        The policy's times are short: cases check the steps, not their times. The time between two
        changes exceeds the age of a fresh checkpoint, so each change requests a checkpoint.
        """
        created = self.space.nodes(nodes, cpu=str(FULL // nodes), memory="64Gi")
        parameters = {"wait": 3, "idle": idle, "rest": 12}
        self.space.policy(companion={"scale": {"mode": mode, "parameters": parameters}})
        sizes = f"{LEAST}-{FULL}" if self.kind == "PyTorchJob" else f"{LEAST - 1}-{FULL - 1}"
        self.space.submit(elastic(self.kind, sizes=sizes, dynamic=self.dynamic))
        self.space.bound(TRAIN, FULL)
        self.space.phase(TRAIN, "Placed", self.kind)
        return created

    def crowd(self) -> None:
        """Submit the gang with a deadline; without it, a donor would keep half of its workers."""
        gang = workers(GANG, WAITING, each=_CPU)
        gang["spec"]["runPolicy"] = {"activeDeadlineSeconds": _DEADLINE_SECONDS}
        self.space.submit(gang)

    def wait_scaled_down(self) -> None:
        """Wait until the job is scaled down and the gang runs."""
        self.patiently(lambda: self._runs(GANG, WAITING))
        self.patiently(lambda: self._runs(TRAIN, LEAST))

    def end_gang(self) -> None:
        """Let the gang succeed."""
        for name in self.space.nodes_by_pod(GANG):
            succeed(self.space, name)

    def wait_full_size(self) -> None:
        self.patiently(lambda: self._runs(TRAIN, FULL))

    def wait_reason(self, *reasons: str) -> Object:
        """Wait until the condition Scaled of the job has one of these reasons; return it."""

        def shown() -> Object | None:
            condition = self.scaled_condition()
            return condition if condition and condition["reason"] in reasons else None

        condition: Object = self.patiently(shown)
        return condition

    def scaled_condition(self) -> Object | None:
        """Return the condition Scaled of the job, or None."""
        conditions = self.space.view(TRAIN, self.kind).get("conditions", [])
        return next(
            (condition for condition in conditions if condition["type"] == names.SCALED), None
        )

    def sizes(self) -> list[int]:
        """Return the numbers of workers that kfext has written, in order."""
        writes = self.space.kfext.writes(size_patch(self.space.name))
        return [size for exchange in writes if (size := _workers(exchange)) is not None]

    def worker_count(self) -> int:
        """Return the number of workers in the spec of the job."""
        replicas: int = specs(self.space.job(TRAIN, self.kind))["Worker"]["replicas"]
        return replicas

    def edit(self, spec: Object) -> None:
        """Change the job as a person does."""
        self.space.patch_job(TRAIN, {"spec": spec}, self.kind)

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Change the settings of the job as a person does."""
        self.space.patch_job(TRAIN, {"metadata": {"annotations": annotations}}, self.kind)

    def uids(self) -> dict[str, str]:
        return uids(self.space, TRAIN)

    def patiently(self, condition: Any) -> Any:
        """Wait for a condition with enough time for a checkpoint, a decision and new pods."""
        return self.space.patiently(condition, seconds=_PATIENCE_SECONDS)

    def _runs(self, name: str, count: int) -> bool:
        pods = self.space.pods(name, ending=True)
        return len(pods) == count and all(
            pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
            for pod in pods
        )
