"""Which container has which devices: kubelet's pod-resources service."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from kfext.gpu.messages import POD_RESOURCES, messages

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


async def held_devices(socket: Path = SOCKET) -> list[Held]:
    """Return what each container on the node has of each resource. Raises grpc.RpcError."""
    limits = [("grpc.max_receive_message_length", _LONGEST)]
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=limits) as channel:
        list_all = channel.unary_unary(
            "/v1.PodResourcesLister/List",
            request_serializer=_MESSAGES["ListPodResourcesRequest"].SerializeToString,
            response_deserializer=_MESSAGES["ListPodResourcesResponse"].FromString,
        )
        answer = await list_all(_MESSAGES["ListPodResourcesRequest"](), timeout=10)
    found: dict[tuple[str, str, str, str], set[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:  # kubelet names each by itself
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                found.setdefault(key, set()).update(devices.device_ids)
    return [Held(*key, frozenset(ids)) for key, ids in found.items()]
