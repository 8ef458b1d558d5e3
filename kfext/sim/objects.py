"""Jobs and pods of a simulated cluster: as the API server stores them, and as kfext reads them."""

import json
from dataclasses import dataclass, field
from typing import Any

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod, PodDemand, ReplicaKey
from kfext.model.quantity import CPU
from kfext.sim.jobs import JobSpec
from kfext.sim.training import Training

Raw = dict[str, Any]


@dataclass(slots=True, eq=False)
class LivePod:
    """A pod: its JSON object, its parsed form, and its `number` in the order of creation."""

    raw: Raw
    pod: Pod
    demand: PodDemand
    job: "LiveJob"
    key: ReplicaKey
    number: int

    @property
    def cpu(self) -> int:
        """The millicores that it requests."""
        return self.pod.requests[CPU]

    @property
    def trains(self) -> bool:
        """Whether pods of its type train; parameter servers, for example, do not."""
        return self.key.type in map(str.lower, self.job.job.kind.training_types)

    @property
    def runs(self) -> bool:
        """Whether its container runs; a pod that is being deleted counts as stopped."""
        return self.pod.phase == "Running" and not self.pod.deleting


@dataclass(slots=True, eq=False)
class LiveJob:
    """A job that was submitted: its JSON object, its parsed form, its pods and its training.

    `rendered`: the object that its operator renders from it, or None.
    `ended`: the second at which its training was done, or None before that.
    """

    spec: JobSpec
    raw: Raw
    job: TrainingJob
    training: Training
    pods: dict[ReplicaKey, LivePod] = field(default_factory=dict)
    rendered: Raw | None = None
    ended: float | None = None

    @property
    def uid(self) -> str:
        """The uid of the job."""
        return self.spec.uid

    @property
    def workers(self) -> int:
        """The current number of workers in its spec."""
        if self.job.kind.rendered:
            return self.job.training_pods
        return sum(group.replicas for group in self.job.groups if group.type == "Worker")


def copied(raw: Raw) -> Raw:
    """Return a copy of a JSON object; this is much faster than copy.deepcopy."""
    copy: Raw = json.loads(json.dumps(raw))
    return copy
