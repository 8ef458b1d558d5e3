"""Which devices there are, and which container has which: kubelet's pod-resources service."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from kfext.gpu.device.messages import POD_RESOURCES, messages

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_MESSAGES = messages("v1", POD_RESOURCES)
_LONGEST = 64 * 2**20
"""Bytes of an answer: a hundred units a card and two hundred pods are far below."""


@dataclass(frozen=True, slots=True)
class Held:
    """All devices of one resource that a container has."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: frozenset[str]


class IncompleteError(Exception):
    """Kubelet does not know all pods of its node yet."""


async def held_devices(
    running: Callable[[], Collection[tuple[str, str]]], socket: Path = SOCKET
) -> list[Held]:
    """Return what each container on the node has of each resource.

    `running`: returns namespace and name of pods that run on the node, among them the one that
    asks. Raises grpc.RpcError, or IncompleteError for an answer without one of them: after a
    restart a kubelet reads its pods from the API server, and lists one after the other, although
    all of them run on.
    """
    answer = await _asked(socket, "List", of="ListPodResources")
    listed = {(pod.namespace, pod.name) for pod in answer.pod_resources}
    for namespace, name in running():
        if (namespace, name) not in listed:
            raise IncompleteError(f"kubelet does not list pod {namespace}/{name}, which runs")
    found: dict[tuple[str, str, str, str], set[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:  # kubelet names each by itself
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                found.setdefault(key, set()).update(devices.device_ids)
    return [Held(*key, frozenset(ids)) for key, ids in found.items()]


async def offered_devices(resource: str, socket: Path = SOCKET) -> frozenset[str]:
    """Return the devices of a resource that are healthy, whoever has them. Raises grpc.RpcError.

    A kubelet before Kubernetes 1.23 does not answer this.
    """
    answer = await _asked(socket, "GetAllocatableResources", of="AllocatableResources")
    offered = (one.device_ids for one in answer.devices if one.resource_name == resource)
    return frozenset(device for ids in offered for device in ids)


async def _asked(socket: Path, method: str, *, of: str) -> Any:
    """Return the answer to a question without arguments; `of` begins the names of its messages."""
    request, response = _MESSAGES[f"{of}Request"], _MESSAGES[f"{of}Response"]
    limits = [("grpc.max_receive_message_length", _LONGEST)]
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=limits) as channel:
        ask = channel.unary_unary(
            f"/v1.PodResourcesLister/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return await ask(request(), timeout=10)
