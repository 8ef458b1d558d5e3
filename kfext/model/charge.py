"""The charge of a pod to the resource quotas of its namespace, under the names of quotas.

Source: kubernetes pkg/quota/v1/evaluator/core/pods.go.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kfext.model.podspec import containers_of, is_best_effort, pod_limits, pod_requests
from kfext.model.quantity import CPU, MEMORY, PODS, Resources
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import NATIVE_GPU, PREFERRED, REQUIRED

EPHEMERAL_STORAGE = "ephemeral-storage"
REQUESTS, LIMITS, _COUNT = "requests.", "limits.", "count/"
GPUS = REQUESTS + NATIVE_GPU
_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)


@dataclass(frozen=True, slots=True)
class PodCharge:
    """The charge of one pod, and the properties that decide which quotas cover it.

    It is hashable, so that equal pods are counted together.

    `usage`: amounts by quota resource (`pods`, `requests.cpu`), sorted by name, in the units of
        model.quantity.
    `unstated`: quota resources that at least one container does not state (`limits.memory`),
        sorted; the API server refuses the pod if a quota limits any of them.
    `best_effort`: whether nothing requests CPU or memory.
    `terminating`: whether activeDeadlineSeconds is set.
    `cross_namespace_affinity`: whether an affinity term names other namespaces.

    `parts`: the hundredths of a GPU that it has a share of; only kfext counts them.
    `served`: whether the operator creates a headless Service for it. JobSet creates a single
        Service for the whole job, before the job is started.
    """

    usage: tuple[tuple[str, int], ...] = ()
    unstated: tuple[str, ...] = ()
    best_effort: bool = False
    terminating: bool = False
    cross_namespace_affinity: bool = False
    priority_class: str = ""
    parts: int = 0
    served: bool = True

    def sharing(self, parts: int) -> "PodCharge":
        """Return the charge of the pod if it has this many hundredths of a GPU, not a GPU."""
        others = (entry for entry in self.usage if entry[0] != GPUS)
        return replace(self, usage=tuple(others), parts=parts)

    def requesting(self, requests: Resources) -> "PodCharge":
        """Return the charge of the pod if it requests these amounts; its limits stay."""
        others = (entry for entry in self.usage if entry[0].startswith((LIMITS, _COUNT)))
        charge = replace(
            self,
            usage=tuple(sorted({*others, *_requested(requests)})),
            best_effort=self.best_effort and not (requests.get(CPU) or requests.get(MEMORY)),
        )
        return charge.sharing(self.parts) if self.parts else charge


def pod_charge(spec: Mapping[str, Any]) -> PodCharge:
    """Return the charge of a pod of this spec from its creation to its end. Never raises."""
    deadline = spec.get("activeDeadlineSeconds")
    return PodCharge(
        usage=tuple(sorted(_usage(spec))),
        unstated=tuple(sorted(_unstated(spec))),
        best_effort=is_best_effort(spec),
        terminating=type(deadline) is int and deadline >= 0,
        cross_namespace_affinity=_crosses_namespaces(mapping(spec.get("affinity"))),
        priority_class=text(spec.get("priorityClassName")),
    )


def _usage(spec: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    yield _COUNT + PODS, 1
    yield from _requested(pod_requests(spec))
    for name, number in pod_limits(spec).items():
        if name in _NATIVE:
            yield LIMITS + name, number


def _requested(requests: Resources) -> Iterator[tuple[str, int]]:
    for name, number in requests.items():
        if name in _NATIVE or name.startswith("hugepages-"):
            yield name, number
            yield REQUESTS + name, number
        elif name == PODS:
            yield name, number
        elif "/" in name:  # quotas count an extended resource only as `requests.`
            yield REQUESTS + name, number


def _unstated(spec: Mapping[str, Any]) -> set[str]:
    """Return the resources that a container does not state; none with pod-level resources."""
    pod_level = mapping(spec.get("resources"))
    if pod_level.get("requests") or pod_level.get("limits"):
        return set()
    missing = set()
    for container in containers_of(spec):
        resources = mapping(container.get("resources"))
        limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
        for name in (CPU, MEMORY):
            if name not in limits:
                missing.add(LIMITS + name)
                if name not in requests:
                    missing.add(REQUESTS + name)
    return missing


def _crosses_namespaces(affinity: Mapping[str, Any]) -> bool:
    for terms in map(mapping, (affinity.get("podAffinity"), affinity.get("podAntiAffinity"))):
        preferred = sequence(terms.get(PREFERRED))
        weighted = (mapping(term).get("podAffinityTerm") for term in preferred)
        for term in map(mapping, (*sequence(terms.get(REQUIRED)), *weighted)):
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False
