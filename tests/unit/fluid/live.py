"""A job and a pod of a model cluster: as the API server shows them, and as kfext sees them."""

from dataclasses import dataclass
from typing import Any

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod, PodDemand, ReplicaKey
from kfext.names import DOMAIN
from tests.unit.fluid.jobs import JobSpec
from tests.unit.fluid.training import Training

Raw = dict[str, Any]

REQUEST = f"{DOMAIN}/checkpoint-request"
"""Annotation on pods: the number of the checkpoint that is requested."""


@dataclass(slots=True, eq=False)
class LivePod:
    """A pod: as the API server shows it, and as kfext sees it; `number`: in order of creation."""

    raw: Raw
    pod: Pod
    demand: PodDemand
    job: "LiveJob"
    key: ReplicaKey
    number: int

    @property
    def cpu(self) -> int:
        return self.pod.requests["cpu"]

    @property
    def requested(self) -> int:
        """The number of the checkpoint that its annotation requests, 0 without one."""
        return int(self.raw["metadata"].get("annotations", {}).get(REQUEST, 0))

    @property
    def runs(self) -> bool:
        """Whether its container trains: it does no more once the pod is to end."""
        return self.pod.phase == "Running" and not self.pod.deleting


@dataclass(slots=True, eq=False)
class LiveJob:
    """A job that was submitted: what the API server shows of it, its pods, and its training."""

    spec: JobSpec
    raw: Raw
    job: TrainingJob
    training: Training
    pods: dict[ReplicaKey, LivePod]
    ended: float | None = None

    @property
    def uid(self) -> str:
        return self.spec.uid

    @property
    def workers(self) -> int:
        """The workers that its spec has now."""
        return sum(group.replicas for group in self.job.groups if group.type == "Worker")
