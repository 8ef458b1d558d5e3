"""What a pod spec asks of kube-scheduler, counted as kube-scheduler counts it."""

from collections.abc import Iterator, Mapping
from typing import Any

from kfext.model.quantity import CPU, MEMORY, Resources, add, maximum, parse_resources
from kfext.model.tolerant import mapping, sequence


def pod_requests(spec: Mapping[str, Any]) -> Resources:
    """Return the requests of a pod, overhead included and the pod itself counted as one `pods`.

    Containers add up; init containers run one after the other, each beside the sidecars
    (init containers that restart always) started before it. Pod-level requests, where given,
    replace the sum for their resource. Source: kubernetes component-helpers resource.PodRequests.
    """
    running = add(_requests(container) for container in _containers(spec, "containers"))
    sidecars: Resources = {}
    peak: Resources = {}
    for container in _containers(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":
            sidecars = add((sidecars, _requests(container)))
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add((sidecars, _requests(container))))
    total = maximum(add((running, sidecars)), peak)
    total.update(_requests(spec))
    return {**add((total, parse_resources(spec.get("overhead")))), "pods": 1}


def is_guaranteed(spec: Mapping[str, Any]) -> bool:
    """Return whether CPU and memory have requests = limits everywhere (QoS class Guaranteed)."""
    containers = [*_containers(spec, "containers"), *_containers(spec, "initContainers")]
    return bool(containers) and all(
        limits.get(name, 0) > 0 and _requests(container).get(name) == limits[name]
        for container in containers
        for limits in [parse_resources(mapping(container.get("resources")).get("limits"))]
        for name in (CPU, MEMORY)
    )


def _containers(spec: Mapping[str, Any], field: str) -> Iterator[Mapping[str, Any]]:
    return map(mapping, sequence(spec.get(field)))


def _requests(holder: Mapping[str, Any]) -> dict[str, int]:
    """Return the requests of a container or pod; a limit without a request is also a request."""
    resources = mapping(holder.get("resources"))
    return {
        **parse_resources(resources.get("limits")),
        **parse_resources(resources.get("requests")),
    }
