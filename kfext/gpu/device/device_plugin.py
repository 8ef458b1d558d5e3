"""A device plugin for kubelet: one resource, its devices, and what a container gets with them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import structlog

from kfext.gpu.device.messages import DEVICE_PLUGIN, messages

_log = structlog.get_logger(__name__)

FOLDER = Path("/var/lib/kubelet/device-plugins")
KUBELET = "kubelet.sock"
_VERSION = "v1beta1"
_MESSAGES = messages(_VERSION, DEVICE_PLUGIN)
_HEALTH = {True: "Healthy", False: "Unhealthy"}
_LOOK_SECONDS = 1.0
"""Pause between two looks for a kubelet that was restarted: it forgets its plugins."""


class RefusedError(Exception):
    """A container must not start with these devices; kubelet shows the sentence on the pod."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the node, and where the container sees it; read-only."""

    host: str
    container: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a container gets: variables, folders, and devices by their CDI names."""

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    cdi: Sequence[str] = ()


class DevicePlugin:
    """Offers the devices of one resource. `allocate`: gets the ids that a container gets.

    It raises RefusedError if the container must not start with them.
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
        """Serve, and register with kubelet, again after each of its starts, until cancelled."""
        while True:
            try:
                await self._run_once()
            except grpc.aio.AioRpcError as error:
                _log.warning("not registered", resource=self.resource, why=error.details())
            except (OSError, RuntimeError) as error:  # gRPC raises RuntimeError if it cannot listen
                _log.warning("not served", resource=self.resource, why=str(error))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _run_once(self) -> None:
        """Serve, and register with kubelet, until kubelet is restarted or away."""
        server = await self._serve()
        try:
            kubelet = self._kubelet()
            if kubelet is not None:
                await self._register()
                await self._until_forgotten(kubelet)
        finally:
            await server.stop(grace=None)
            with suppress(FileNotFoundError):
                self._socket.unlink()

    async def _until_forgotten(self, known: tuple[int, int]) -> None:
        """Return when kubelet was restarted, which removes the sockets of all plugins."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if known != self._kubelet() or not self._socket.exists():
                return

    def _kubelet(self) -> tuple[int, int] | None:
        """Return what tells one run of kubelet from another, or None without kubelet."""
        try:
            status = (self._folder / KUBELET).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_ctime_ns

    async def _serve(self) -> grpc.aio.Server:
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
        await server.start()
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
            devices = [{"ID": device, "health": _HEALTH[well]} for device, well in offered.items()]
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
        {"host_path": mount.host, "container_path": mount.container, "read_only": True}
        for mount in allocation.mounts
    ]
    devices = [{"name": name} for name in allocation.cdi]
    return {
        "envs": dict(allocation.env),
        "mounts": mounts,
        "cdi_devices": devices,
    }


def _unary(method: Any, request: str, response: str) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=_MESSAGES[request].FromString,
        response_serializer=_MESSAGES[response].SerializeToString,
    )
