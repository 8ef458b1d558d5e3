"""The CPU of a pod's training container: its present size, and the size to write.

Source: kubernetes KEP-1287, in-place update of pod resources.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfext.model.podspec import (
    container_named,
    has_pod_level_resources,
    limits_of,
    pod_requests,
    requests_of,
)
from kfext.model.quantity import CPU, parse_resources
from kfext.model.tolerant import mapping, sequence, text
from kfext.model.verdict import Verdict

_RESTARTS = "RestartContainer"
_PENDING, _IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_PROBLEMS = ("Deferred", "Infeasible", "Error")
_LONGEST_MESSAGE = 512


@dataclass(frozen=True, slots=True)
class TrainerCpu:
    """The CPU of a training container, in millicores.

    `request`, `limit`: the values in the spec; a limit of None means unlimited.
    `given`: the limit that the kubelet has set, by the status; None means that it states none.
    `restarts`: whether a resize of its CPU restarts it.
    `allocated`: the request that the kubelet has allocated, in the same form.
    `beside`: the CPU request of its pod without this container.
    """

    request: int
    limit: int | None
    given: int | None = None
    restarts: bool = False
    allocated: int | None = None
    beside: int = 0

    @property
    def counted(self) -> int:
        """The CPU that kube-scheduler counts: a smaller request counts after it is allocated."""
        return max(self.request, self.allocated or 0)


@dataclass(frozen=True, slots=True)
class CpuSize:
    """The CPU to write for a container, in millicores; None leaves a value unchanged."""

    limit: int | None = None
    request: int | None = None


def trainer_cpu(
    spec: Mapping[str, Any], status: Mapping[str, Any], *, container: str
) -> TrainerCpu | None:
    """Return the CPU of a pod's training container, which has the name `container`. Never raises.

    Return None for a pod that lacks such a container, or has pod-level resources, which bound all
    of its containers together.
    """
    named = container_named(spec, container) if container else None
    if named is None or has_pod_level_resources(spec):
        return None
    index, trainer = named
    containers = list(sequence(spec.get("containers")))
    containers[index] = {**trainer, "resources": {}}
    trainer_status = _status_of(status, name=container)
    resources = mapping(trainer_status.get("resources"))
    allocated = parse_resources(
        trainer_status.get("allocatedResources") or resources.get("requests")
    )
    return TrainerCpu(
        request=requests_of(trainer).get(CPU, 0),
        limit=limits_of(trainer).get(CPU),
        given=limits_of({"resources": resources}).get(CPU),
        allocated=allocated.get(CPU),
        beside=pod_requests({**spec, "containers": containers}).get(CPU, 0),
        restarts=any(
            item.get("resourceName") == CPU and item.get("restartPolicy") == _RESTARTS
            for item in map(mapping, sequence(trainer.get("resizePolicy")))
        ),
    )


def resize_problem(status: Mapping[str, Any]) -> Verdict | None:
    """Return why the kubelet has not carried out the last resize of a pod, or None. Never raises.

    The reason is Deferred (the kubelet tries again), Infeasible (it never will) or Error.
    """
    problems = {
        text(condition.get("type")): condition
        for condition in map(mapping, sequence(status.get("conditions")))
        if condition.get("reason") in _PROBLEMS
    }
    problem = problems.get(_PENDING) or problems.get(_IN_PROGRESS)
    if problem is None:
        return None
    return Verdict(problem["reason"], text(problem.get("message"))[:_LONGEST_MESSAGE])


def _status_of(status: Mapping[str, Any], *, name: str) -> Mapping[str, Any]:
    statuses = map(mapping, sequence(status.get("containerStatuses")))
    return next((container for container in statuses if container.get("name") == name), {})
