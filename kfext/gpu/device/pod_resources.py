"""All devices of the node, and the devices of each container: kubelet's pod-resources service."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from kfext.gpu.device.messages import POD_RESOURCES, messages

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_MESSAGES = messages("v1", POD_RESOURCES)
_LONGEST = 64 * 2**20
"""The largest answer in bytes: a hundred units a card and two hundred pods stay far below."""


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
    """Return the devices that each container on the node has, by resource.

    `running`: returns namespace and name of pods that run on the node, including the caller's pod.
    Raises grpc.RpcError, or IncompleteError for an answer without one of these pods: a restarted
    kubelet reads its pods from the API server and lists them one by one, although all of them run.
    """
    answer = await _asked(socket, "List", of="ListPodResources")
    listed = {(pod.namespace, pod.name) for pod in answer.pod_resources}
    for namespace, name in running():
        if (namespace, name) not in listed:
            raise IncompleteError(f"kubelet does not list pod {namespace}/{name}, which runs")
    held: dict[tuple[str, str, str, str], set[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:  # kubelet lists each device separately
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                held.setdefault(key, set()).update(devices.device_ids)
    return [Held(*key, frozenset(ids)) for key, ids in held.items()]


async def offered_devices(resource: str, socket: Path = SOCKET) -> frozenset[str]:
    """Return the healthy devices of a resource, free or not. Raises grpc.RpcError.

    A kubelet before Kubernetes 1.23 does not answer this.
    """
    answer = await _asked(socket, "GetAllocatableResources", of="AllocatableResources")
    offered = (
        devices.device_ids for devices in answer.devices if devices.resource_name == resource
    )
    return frozenset(device for ids in offered for device in ids)


async def _asked(socket: Path, method: str, *, of: str) -> Any:
    """Return the answer to a question without arguments; `of`: the prefix of its messages."""
    request, response = _MESSAGES[f"{of}Request"], _MESSAGES[f"{of}Response"]
    limits = [("grpc.max_receive_message_length", _LONGEST)]
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=limits) as channel:
        ask = channel.unary_unary(
            f"/v1.PodResourcesLister/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return await ask(request(), timeout=10)
