"""Kubelet's gRPC APIs: device plugins offer a resource; pod resources list the devices of pods.

The messages are tables instead of generated code. They are from `deviceplugin/v1beta1/api.proto`
and `podresources/v1/api.proto` of k8s.io/kubelet 0.35, without the fields that kfext neither reads
nor writes: protobuf skips unknown fields.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import structlog
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields = tuple[tuple[str, int, str], ...]
"""Name, number and type of each field. The type is a protobuf scalar or the name of a message, with
the prefix `[]` if it is repeated; `{}` means a map of strings."""
_SCALARS = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}

DEVICE_PLUGIN: Mapping[str, Fields] = {
    "Empty": (),
    "DevicePluginOptions": (),
    "RegisterRequest": (
        ("version", 1, "string"),
        ("endpoint", 2, "string"),
        ("resource_name", 3, "string"),
    ),
    "Device": (("ID", 1, "string"), ("health", 2, "string")),
    "ListAndWatchResponse": (("devices", 1, "[]Device"),),
    "ContainerAllocateRequest": (("devices_ids", 1, "[]string"),),
    "AllocateRequest": (("container_requests", 1, "[]ContainerAllocateRequest"),),
    "Mount": (
        ("container_path", 1, "string"),
        ("host_path", 2, "string"),
        ("read_only", 3, "bool"),
    ),
    "CDIDevice": (("name", 1, "string"),),
    "ContainerAllocateResponse": (
        ("envs", 1, "{}"),
        ("mounts", 2, "[]Mount"),
        ("cdi_devices", 5, "[]CDIDevice"),
    ),
    "AllocateResponse": (("container_responses", 1, "[]ContainerAllocateResponse"),),
}
POD_RESOURCES: Mapping[str, Fields] = {
    "ListPodResourcesRequest": (),
    "ContainerDevices": (("resource_name", 1, "string"), ("device_ids", 2, "[]string")),
    "ContainerResources": (("name", 1, "string"), ("devices", 2, "[]ContainerDevices")),
    "PodResources": (
        ("name", 1, "string"),
        ("namespace", 2, "string"),
        ("containers", 3, "[]ContainerResources"),
    ),
    "ListPodResourcesResponse": (("pod_resources", 1, "[]PodResources"),),
    "AllocatableResourcesRequest": (),
    "AllocatableResourcesResponse": (("devices", 1, "[]ContainerDevices"),),
}


def messages(package: str, tables: Mapping[str, Fields]) -> dict[str, Any]:
    """Return the class of each message of a package, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"kfext/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in tables.items():
        message = file.message_type.add(name=name)
        for name_, number, type_ in fields:
            _add(message, package, field=name_, number=number, type_=type_)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in tables
    }


def _add(message: Any, package: str, *, field: str, number: int, type_: str) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    added = message.field.add(name=field, number=number, label=kinds.LABEL_OPTIONAL)
    if type_.startswith(("[]", "{}")):
        added.label = kinds.LABEL_REPEATED
    plain = type_.removeprefix("[]")
    if plain in _SCALARS:
        added.type = _SCALARS[plain]
        return
    added.type = kinds.TYPE_MESSAGE
    if type_ == "{}":
        entry = f"{field.capitalize()}Entry"
        pairs = message.nested_type.add(name=entry)
        pairs.options.map_entry = True
        for key, index in (("key", 1), ("value", 2)):
            pairs.field.add(
                name=key, number=index, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL
            )
        plain = f"{message.name}.{entry}"
    added.type_name = f".{package}.{plain}"


_log = structlog.get_logger(__name__)

FOLDER = Path("/var/lib/kubelet/device-plugins")
KUBELET = "kubelet.sock"
_VERSION = "v1beta1"
_MESSAGES = messages(_VERSION, DEVICE_PLUGIN)
_HEALTH = {True: "Healthy", False: "Unhealthy"}
_CHECK_SECONDS = 1.0
"""Pause between two checks for a restart of kubelet, which forgets its plugins then."""


class RefusedError(Exception):
    """A container must not start with these devices; kubelet shows the message on the pod."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What kubelet adds to a container: environment variables, folders, and devices by CDI name.

    `mounts`: the path in the container of each folder on the node, read-only.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    cdi: Sequence[str] = ()


class DevicePlugin:
    """Offers the devices of one resource.

    `allocate`: returns the allocation of a container by the ids of its devices; raises RefusedError
    if the container must not start with them.
    """

    def __init__(
        self,
        resource: str,
        *,
        allocate: Callable[[Sequence[str]], Allocation],
        folder: Path = FOLDER,
    ) -> None:
        self.resource = resource
        self._allocate = allocate
        self._folder = folder
        self._socket = folder / f"{resource.replace('/', '-')}.sock"
        self._devices: dict[str, bool] = {}
        self._changed = asyncio.Condition()

    async def offer(self, devices: Mapping[str, bool]) -> None:
        """Offer these devices from now on, each healthy or not."""
        if dict(devices) == self._devices:
            return
        async with self._changed:
            self._devices = dict(devices)
            self._changed.notify_all()

    async def run(self) -> None:
        """Serve until cancelled, and register with kubelet after each of its starts."""
        while True:
            try:
                await self._run_once()
            except grpc.aio.AioRpcError as error:
                _log.warning("not registered", resource=self.resource, why=error.details())
            except (OSError, RuntimeError) as error:  # gRPC raises RuntimeError if it cannot listen
                _log.warning("not served", resource=self.resource, why=str(error))
            await asyncio.sleep(_CHECK_SECONDS)

    async def _run_once(self) -> None:
        """Serve and register until kubelet restarts; return at once if kubelet does not run."""
        server = self._server()
        # gRPC fails in its main loop if its start is cancelled.
        started = asyncio.ensure_future(server.start())
        try:
            await asyncio.shield(started)
            kubelet = self._kubelet()
            if kubelet is not None:
                await self._register()
                await self._until_forgotten(kubelet)
        finally:
            self._socket.unlink(missing_ok=True)
            await started
            await server.stop(grace=None)

    async def _until_forgotten(self, known: tuple[int, int]) -> None:
        """Return once the run `known` has ended: a restart removes the sockets of all plugins."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if known != self._kubelet() or not self._socket.exists():
                return

    def _kubelet(self) -> tuple[int, int] | None:
        """Return the identity of the running kubelet; None means that kubelet does not run."""
        try:
            status = (self._folder / KUBELET).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_ctime_ns

    def _server(self) -> grpc.aio.Server:
        handlers = {
            "GetDevicePluginOptions": _unary(self._options, "Empty", "DevicePluginOptions"),
            "Allocate": _unary(self._allocated, "AllocateRequest", "AllocateResponse"),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list_and_watch,
                request_deserializer=_MESSAGES["Empty"].FromString,
                response_serializer=_MESSAGES["ListAndWatchResponse"].SerializeToString,
            ),
        }
        server = grpc.aio.server()
        service = f"{_VERSION}.DevicePlugin"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self._socket.unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{self._socket}")
        return server

    async def _register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix://{self._folder / KUBELET}") as channel:
            register = channel.unary_unary(
                f"/{_VERSION}.Registration/Register",
                request_serializer=_MESSAGES["RegisterRequest"].SerializeToString,
                response_deserializer=_MESSAGES["Empty"].FromString,
            )
            request = _MESSAGES["RegisterRequest"](
                version=_VERSION, endpoint=self._socket.name, resource_name=self.resource
            )
            await register(request, timeout=10)
        _log.info("registered", resource=self.resource)

    async def _options(self, _: Any, __: Any) -> Any:
        return _MESSAGES["DevicePluginOptions"]()

    async def _list_and_watch(self, _: Any, __: Any) -> AsyncIterator[Any]:
        while True:
            offered = self._devices
            devices = [{"ID": device, "health": _HEALTH[ok]} for device, ok in offered.items()]
            yield _MESSAGES["ListAndWatchResponse"](devices=devices)
            async with self._changed:
                while self._devices is offered:
                    await self._changed.wait()

    async def _allocated(self, request: Any, context: Any) -> Any:
        responses = []
        for container in request.container_requests:
            try:
                responses.append(_encoded(self._allocate(list(container.devices_ids))))
            except RefusedError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return _MESSAGES["AllocateResponse"](container_responses=responses)


def _encoded(allocation: Allocation) -> dict[str, Any]:
    mounts = [
        {"host_path": host, "container_path": container, "read_only": True}
        for host, container in allocation.mounts.items()
    ]
    devices = [{"name": name} for name in allocation.cdi]
    return {"envs": dict(allocation.env), "mounts": mounts, "cdi_devices": devices}


def _unary(method: Any, request: str, response: str) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=_MESSAGES[request].FromString,
        response_serializer=_MESSAGES[response].SerializeToString,
    )


POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_POD_RESOURCES_MESSAGES = messages("v1", POD_RESOURCES)
_MAX_BYTES = 64 * 2**20
"""The largest answer: far more than 200 pods and 100 units on each card need."""


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """All devices of one resource that a container has."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: frozenset[str]


class IncompleteError(Exception):
    """Kubelet does not know all pods of its node yet."""


async def allocated_devices(
    running: Callable[[], Collection[tuple[str, str]]], socket: Path = POD_RESOURCES_SOCKET
) -> list[AllocatedDevices]:
    """Return the devices that each container on the node has, by resource.

    `running`: returns namespace and name of pods that run on the node, including the caller's pod.
    Raises grpc.RpcError, or IncompleteError for an answer without one of these pods: a restarted
    kubelet reads its pods from the API server and adds them one by one, although all of them run.
    """
    answer = await _request(socket, "List", prefix="ListPodResources")
    listed = {(pod.namespace, pod.name) for pod in answer.pod_resources}
    for namespace, name in running():
        if (namespace, name) not in listed:
            raise IncompleteError(f"kubelet does not list pod {namespace}/{name}, which runs")
    allocated: dict[tuple[str, str, str, str], set[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:  # kubelet lists each device separately
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                allocated.setdefault(key, set()).update(devices.device_ids)
    return [AllocatedDevices(*key, frozenset(ids)) for key, ids in allocated.items()]


async def allocatable_devices(resource: str, socket: Path = POD_RESOURCES_SOCKET) -> frozenset[str]:
    """Return the healthy devices of a resource, free or not. Raises grpc.RpcError.

    A kubelet before Kubernetes 1.23 does not serve it.
    """
    answer = await _request(socket, "GetAllocatableResources", prefix="AllocatableResources")
    offered = (
        devices.device_ids for devices in answer.devices if devices.resource_name == resource
    )
    return frozenset(device for ids in offered for device in ids)


async def _request(socket: Path, method: str, *, prefix: str) -> Any:
    """Call a method without arguments; `prefix`: the prefix of the names of its two messages."""
    request, response = (
        _POD_RESOURCES_MESSAGES[f"{prefix}{kind}"] for kind in ("Request", "Response")
    )
    limits = [("grpc.max_receive_message_length", _MAX_BYTES)]
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=limits) as channel:
        call = channel.unary_unary(
            f"/v1.PodResourcesLister/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return await call(request(), timeout=10)
