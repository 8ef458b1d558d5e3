"""An elastic job that fills its nodes, a gang that comes for room, and what kfext does of it."""

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
"""CPUs of the nodes; of the job when it is smallest; of the gang. Every pod has one."""
_CPU = {"cpu": "1"}
_DEADLINE_SECONDS = 300
"""Of the gang, once it runs."""
_PATIENCE_SECONDS = 420.0
"""A job that was asked for a checkpoint in vain is left alone for 300 s."""


def size_patch(namespace: str) -> Match:
    """Match kfext's patch that changes the number of workers of a job that runs.

    It suspends a job that cannot change while it runs.
    """
    wanted = job_patch(namespace)
    return lambda exchange: wanted(exchange) and _workers(exchange) is not None


def resume_patch(namespace: str) -> Match:
    """Match kfext's patch that starts the job again that it has suspended."""
    wanted = unsuspend_patch(namespace)
    return lambda exchange: wanted(exchange) and exchange.path.endswith(f"/{TRAIN}")


def request_patch(namespace: str) -> Match:
    """Match kfext's patch of a pod that asks for a checkpoint."""
    wanted = pod_patch(namespace)
    return lambda exchange: wanted(exchange) and _requests(exchange)


def pin_patch(namespace: str) -> Match:
    """Match kfext's patch of a pod that sends it to its node."""
    wanted = pod_patch(namespace)
    return lambda exchange: wanted(exchange) and not _requests(exchange)


def view_patch(namespace: str) -> Match:
    """Match what kfext writes of a training."""
    return lambda exchange: exchange.is_write and f"/{namespace}/trainingplans" in exchange.path


def _requests(exchange: Exchange) -> bool:
    return names.CHECKPOINT_REQUEST.partition("/")[2].encode() in exchange.body


def _workers(exchange: Exchange) -> int | None:
    """Return the number of workers that a patch writes; None: no number, or it starts a job."""
    operations = [each for each in json.loads(exchange.body) if each["op"] != "test"]
    written = {each["path"]: each.get("value") for each in operations}
    sizes = [value for path, value in written.items() if path.endswith("/Worker/replicas")]
    return sizes[0] if sizes and written.get("/spec/runPolicy/suspend") is not False else None


def elastic(kind: str, *, sizes: str, dynamic: bool = True) -> Object:
    """Return a job of FULL pods in a form that kfext may scale; one pod of a TFJob is a server.

    Its workers come and go while it runs if they are `dynamic`.
    """
    options: dict[str, Any] = {"each": _CPU, "annotations": {names.ELASTIC: sizes}}
    if kind == "TFJob":
        made = job(TRAIN, {"PS": 1, "Worker": FULL - 1}, kind=kind, **options)
        made["spec"]["enableDynamicWorker"] = dynamic
        return made
    made = workers(TRAIN, FULL, **options)
    for spec in specs(made).values():
        (container,) = spec["template"]["spec"]["containers"]
        container["command"] = ["torchrun", "train.py"]
    return made


@dataclass(frozen=True)
class Scene:
    """A namespace in which an elastic job and a gang want more room than there is."""

    space: Space
    kind: str = "PyTorchJob"
    dynamic: bool = True

    def fill(self, *, nodes: int = 1, mode: str = "act", idle: int = 5) -> list[str]:
        """Have the job on all of its nodes; return these.

        The policy's times are short: what is checked here are the steps, not when they are taken.
        Two changes are further apart than a checkpoint counts as fresh, so each asks for one.
        """
        made = self.space.nodes(nodes, cpu=str(FULL // nodes), memory="64Gi")
        parameters = {"wait": 3, "idle": idle, "rest": 12}
        self.space.policy(companion={"scale": {"mode": mode, "parameters": parameters}})
        sizes = f"{LEAST}-{FULL}" if self.kind == "PyTorchJob" else f"{LEAST - 1}-{FULL - 1}"
        self.space.submit(elastic(self.kind, sizes=sizes, dynamic=self.dynamic))
        self.space.bound(TRAIN, FULL)
        self.space.phase(TRAIN, "Placed", self.kind)
        return made

    def crowd(self) -> None:
        """Have the gang come. It ends in time: else a donor would keep half of its workers."""
        gang = workers(GANG, WAITING, each=_CPU)
        gang["spec"]["runPolicy"] = {"activeDeadlineSeconds": _DEADLINE_SECONDS}
        self.space.submit(gang)

    def made_room(self) -> None:
        """Wait until the gang runs in the room that the job has made."""
        self.patiently(lambda: self._runs(GANG, WAITING))
        self.patiently(lambda: self._runs(TRAIN, LEAST))

    def clear(self) -> None:
        """Have the gang come to its end."""
        for name in self.space.homes(GANG):
            succeed(self.space, name)

    def grown_back(self) -> None:
        """Wait until the job has its size again."""
        self.patiently(lambda: self._runs(TRAIN, FULL))

    def shows(self, *reasons: str) -> Object:
        """Wait until the job shows one of these reasons; return the condition."""

        def found() -> Object | None:
            condition = self.scaled()
            return condition if condition and condition["reason"] in reasons else None

        condition: Object = self.patiently(found)
        return condition

    def scaled(self) -> Object | None:
        """Return the condition of the job that says what became of its size, None without it."""
        conditions = self.space.view(TRAIN, self.kind).get("conditions", [])
        return next(
            (condition for condition in conditions if condition["type"] == names.SCALED), None
        )

    def sizes(self) -> list[int]:
        """Return the numbers of workers that kfext has written, one after the other."""
        done = self.space.kfext.writes(size_patch(self.space.name))
        return [size for exchange in done if (size := _workers(exchange)) is not None]

    def asked(self) -> int:
        """Return the number of workers that stands in the job."""
        found: int = specs(self.space.job(TRAIN, self.kind))["Worker"]["replicas"]
        return found

    def edit(self, spec: Object) -> None:
        """Change the job as a person does."""
        self.space.patch_job(TRAIN, {"spec": spec}, self.kind)

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Change the settings of the job as a person does."""
        self.space.patch_job(TRAIN, {"metadata": {"annotations": annotations}}, self.kind)

    def uids(self) -> dict[str, str]:
        """Return the uid of each pod of the job."""
        return uids(self.space, TRAIN)

    def patiently(self, condition: Any) -> Any:
        """Wait for what takes a checkpoint, a look at it and some pods."""
        return self.space.patiently(condition, seconds=_PATIENCE_SECONDS)

    def _runs(self, name: str, count: int) -> bool:
        pods = self.space.pods(name, ending=True)
        return len(pods) == count and all(
            pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
            for pod in pods
        )
