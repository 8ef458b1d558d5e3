"""The requests and limits of a pod spec, computed as in kube-scheduler.

The API server applies defaults to pods but not to templates, so they are applied here: a limit
without a request is also the request. While a pod is resized in place, the largest of the
requested, the allocated and the effective amount counts, so that capacity counts as free only once
it is released. Source: kubernetes pkg/apis/core/v1 SetDefaults_Pod, component-helpers
resource.PodRequests, with UseStatusResources, and PodLimits.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from kfext.model.quantity import CPU, MEMORY, Resources, add, maximum, parse_resources
from kfext.model.tolerant import mapping, sequence, text

_PROJECTED = frozenset({"configMap", "secret", "downwardAPI", "projected"})
"""The volume types that no container writes to."""
_STATUSES = ("containerStatuses", "initContainerStatuses")
_NO_STATUS: Mapping[str, Any] = MappingProxyType({})


def pod_requests(spec: Mapping[str, Any], status: Mapping[str, Any] = _NO_STATUS) -> Resources:
    """Return the requests of a pod, with its overhead and with one `pods` for the pod itself.

    Containers add up. Init containers run one after the other, each beside the sidecars (init
    containers with restartPolicy Always) that started before it. A pod-level request replaces the
    sum of its resource. The amount that the kubelet has allocated, by `status`, counts if larger.
    """
    allocations, infeasible = _allocations(spec, status), _is_infeasible(status)

    def counted(container: Mapping[str, Any]) -> Resources:
        requests, allocated = requests_of(container), allocations.get(text(container.get("name")))
        if allocated is None:
            return requests
        # A resize that the node can never carry out does not count.
        return allocated if infeasible else maximum(requests, allocated)

    total = _peak(spec, counted)
    total.update(_pod_level_requests(spec))
    return {**add((total, parse_resources(spec.get("overhead")))), "pods": 1}


def node_affinity(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the node affinity of a pod spec: its terms by REQUIRED or PREFERRED."""
    return mapping(mapping(spec.get("affinity")).get("nodeAffinity"))


def pod_limits(spec: Mapping[str, Any]) -> Resources:
    """Return the limits of a pod: its pod-level limits, else the limits of its containers.

    Overhead is added to each limit. A resource without any limit is absent.
    """
    total = _peak(spec, limits_of)
    total.update(limits_of(spec))
    overhead = parse_resources(spec.get("overhead"))
    return {name: number + overhead.get(name, 0) for name, number in total.items()}


def cpu_limit(spec: Mapping[str, Any]) -> int | None:
    """Return the most CPU that a pod can use, in millicores; None means that it is unlimited.

    A container without a limit makes the pod unlimited. Source: kubernetes ResourceConfigForPod.
    """
    if limit := limits_of(spec).get(CPU):
        return limit + parse_resources(spec.get("overhead")).get(CPU, 0)
    if all(CPU in limits_of(container) for container in lasting_containers_of(spec)):
        return pod_limits(spec).get(CPU)
    return None


def is_guaranteed(spec: Mapping[str, Any]) -> bool:
    """Return whether requests equal limits for all CPU and memory (QoS class Guaranteed)."""
    if has_pod_level_resources(spec):
        limits = limits_of(spec)
        requests = {**_peak(spec, requests_of), **_pod_level_requests(spec)}
        return all(limits.get(name, 0) == requests.get(name, -1) for name in (CPU, MEMORY))
    containers = list(containers_of(spec))
    return bool(containers) and all(
        limits.get(name, 0) > 0 and requests_of(container).get(name) == limits[name]
        for container in containers
        for limits in [limits_of(container)]
        for name in (CPU, MEMORY)
    )


def is_best_effort(spec: Mapping[str, Any]) -> bool:
    """Return whether nothing requests CPU or memory (QoS class BestEffort)."""
    holders = [spec] if has_pod_level_resources(spec) else containers_of(spec)
    return not any(name in requests_of(holder) for holder in holders for name in (CPU, MEMORY))


def containers_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield containers and init containers, sidecars included."""
    return chain(_listed(spec, "containers"), _listed(spec, "initContainers"))


def lasting_containers_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the containers that run as long as the pod: containers and sidecars."""
    sidecars = filter(_is_sidecar, _listed(spec, "initContainers"))
    return chain(_listed(spec, "containers"), sidecars)


def container_named(spec: Mapping[str, Any], name: str) -> tuple[int, Mapping[str, Any]] | None:
    """Return the position of the container with that name, and the container, or None."""
    containers = enumerate(_listed(spec, "containers"))
    return next((item for item in containers if item[1].get("name") == name), None)


def with_container(spec: Mapping[str, Any], position: int, **fields: Any) -> dict[str, Any]:
    """Return a pod spec with new values for some fields of the container at a position."""
    containers = list(sequence(spec.get("containers")))
    containers[position] = {**mapping(containers[position]), **fields}
    return {**spec, "containers": containers}


def local_volume(spec: Mapping[str, Any], *, container: str) -> str:
    """Return the directory of the node or the pod that a container may write to, in words.

    The result is an empty string if the container may write to another volume, such as a claim, or
    to none. A volume in memory does not count.
    """
    named = container_named(spec, container)
    mounts = _listed(named[1], "volumeMounts") if named else iter(())
    written = {text(mount.get("name")) for mount in mounts if mount.get("readOnly") is not True}
    local = ""
    for volume in _listed(spec, "volumes"):
        name = text(volume.get("name"))
        if name not in written or not _PROJECTED.isdisjoint(volume):
            continue
        if "emptyDir" in volume:
            in_memory = mapping(volume.get("emptyDir")).get("medium") == "Memory"
            local = local or ("" if in_memory else f"the emptyDir volume {name}")
        elif "hostPath" in volume:
            local = local or f"the hostPath volume {name}"
        else:
            return ""
    return local


def with_port(
    spec: Mapping[str, Any], *, container: str, name: str, number: int
) -> Mapping[str, Any]:
    """Return the spec of a template with the port that the training-operator adds to its pods.

    The port is added to the container with the name `container`, else to the first, unless that
    container declares a port with the name `name`. Source: training-operator
    pkg/apis/kubeflow.org/v1 setDefaultPort.
    """
    containers = list(_listed(spec, "containers"))
    index, _ = container_named(spec, container) or (0, {})
    ports = list(_listed(containers[index], "ports")) if containers else []
    if not containers or any(port.get("name") == name for port in ports):
        return spec
    added = {"name": name, "containerPort": number}
    containers[index] = {**containers[index], "ports": [*ports, added]}
    return {**spec, "containers": containers}


def requests_of(holder: Mapping[str, Any]) -> dict[str, int]:
    """Return the requests of a container or pod, 0 included; a limit is the default request."""
    resources = mapping(holder.get("resources"))
    stated = mapping(resources.get("requests"))
    limits = parse_resources(resources.get("limits")).items()
    return {
        **{name: number for name, number in limits if name not in stated},
        **parse_resources(stated),
    }


def limits_of(holder: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of a container or pod, or of a container's status."""
    return parse_resources(mapping(holder.get("resources")).get("limits"))


def has_pod_level_resources(spec: Mapping[str, Any]) -> bool:
    """Return whether the pod itself has resources, which then decide its QoS class."""
    return isinstance(spec.get("resources"), Mapping)


def _peak(
    spec: Mapping[str, Any], amounts: Callable[[Mapping[str, Any]], Resources]
) -> dict[str, int]:
    """Return the largest total of `amounts` over the containers of a pod that run at the same time.

    For each init container, only the sums of the resources that it names are updated, so the time
    grows with the number of entries, not with containers times resources.
    """
    running = add(map(amounts, _listed(spec, "containers")))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in _listed(spec, "initContainers"):
        lasts = _is_sidecar(container)
        for name, number in amounts(container).items():
            total = sidecars.get(name, 0) + number
            peak[name] = max(peak.get(name, 0), total)
            if lasts:
                sidecars[name] = total
    return maximum(add((running, sidecars)), peak)


def _pod_level_requests(spec: Mapping[str, Any]) -> Resources:
    """Return the pod-level requests, which replace the sum over the containers.

    A pod-level limit without a request is also the request, except for CPU or memory if a container
    has a request or limit of that resource: then the sum over containers counts. A request or limit
    of 0 counts as stated.
    """
    if not has_pod_level_resources(spec):
        return {}
    stated = mapping(mapping(spec["resources"]).get("requests"))
    return {
        **{
            name: number
            for name, number in limits_of(spec).items()
            if name not in stated and not _left_to_containers(spec, name)
        },
        **parse_resources(stated),
    }


def _left_to_containers(spec: Mapping[str, Any], name: str) -> bool:
    resources = (mapping(container.get("resources")) for container in containers_of(spec))
    return name in {CPU, MEMORY} and any(
        name in mapping(amounts.get("requests")) or name in mapping(amounts.get("limits"))
        for amounts in resources
    )


def _listed(spec: Mapping[str, Any], field: str) -> Iterator[Mapping[str, Any]]:
    return map(mapping, sequence(spec.get(field)))


def _is_sidecar(init_container: Mapping[str, Any]) -> bool:
    return init_container.get("restartPolicy") == "Always"


def _allocations(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Resources]:
    """Return the resources that the kubelet has allocated to lasting containers, by name."""
    lasting = {text(container.get("name")) for container in lasting_containers_of(spec)}
    allocations: dict[str, Resources] = {}
    for container in (
        mapping(container) for key in _STATUSES for container in sequence(status.get(key))
    ):
        name, resources = text(container.get("name")), container.get("resources")
        if name in lasting and isinstance(resources, Mapping):
            allocations[name] = maximum(
                parse_resources(resources.get("requests")),
                parse_resources(container.get("allocatedResources")),
            )
    return allocations


def _is_infeasible(status: Mapping[str, Any]) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in map(mapping, sequence(status.get("conditions")))
    )
