"""The CPU of a pod's training container: its present size, and the size to write.

Source: kubernetes KEP-1287, in-place update of pod resources.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfext.model.kinds.registered import KINDS
from kfext.model.podspec import has_pod_level_resources, limits_of, requests_of
from kfext.model.quantity import CPU
from kfext.model.tolerant import mapping, sequence, text
from kfext.model.verdict import Verdict

_TRAINERS = frozenset(kind.container for kind in KINDS.values())
_RESTARTS = "RestartContainer"
_PENDING, _IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_PROBLEMS = ("Deferred", "Infeasible", "Error")
_LONGEST_MESSAGE = 512


@dataclass(frozen=True, slots=True)
class TrainerCpu:
    """The CPU of a training container, in millicores.

    `request`, `limit`: as in the spec; a limit of None: unlimited.
    `given`: the limit that the kubelet has set by its status; None: not stated.
    `restarts`: whether a resize of its CPU restarts it.
    """

    request: int
    limit: int | None
    given: int | None = None
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class CpuSize:
    """The CPU that a container should have, in millicores; a request of None stays as it is."""

    limit: int
    request: int | None = None


def trainer_cpu(spec: Mapping[str, Any], status: Mapping[str, Any]) -> TrainerCpu | None:
    """Return the CPU of a pod's training container. Never raises.

    Return None without exactly one such container, and for a pod with resources of its own, which
    bound all of its containers together.
    """
    trainers = [item for item in map(mapping, sequence(spec.get("containers"))) if _trains(item)]
    if len(trainers) != 1 or has_pod_level_resources(spec):
        return None
    (trainer,) = trainers
    return TrainerCpu(
        request=requests_of(trainer).get(CPU, 0),
        limit=limits_of(trainer).get(CPU),
        given=_given(status, name=text(trainer.get("name"))),
        restarts=any(
            item.get("resourceName") == CPU and item.get("restartPolicy") == _RESTARTS
            for item in map(mapping, sequence(trainer.get("resizePolicy")))
        ),
    )


def resize_problem(status: Mapping[str, Any]) -> Verdict | None:
    """Return why the kubelet does not carry out the last resize of a pod, or failed to, or None.

    The reason is Deferred (the kubelet tries again), Infeasible (never) or Error. Never raises.
    """
    found = {
        text(condition.get("type")): condition
        for condition in map(mapping, sequence(status.get("conditions")))
        if condition.get("reason") in _PROBLEMS
    }
    problem = found.get(_PENDING) or found.get(_IN_PROGRESS)
    if problem is None:
        return None
    return Verdict(problem["reason"], text(problem.get("message"))[:_LONGEST_MESSAGE])


def _trains(container: Mapping[str, Any]) -> bool:
    return text(container.get("name")) in _TRAINERS


def _given(status: Mapping[str, Any], *, name: str) -> int | None:
    for container in map(mapping, sequence(status.get("containerStatuses"))):
        if container.get("name") == name:
            return limits_of(container).get(CPU)
    return None
