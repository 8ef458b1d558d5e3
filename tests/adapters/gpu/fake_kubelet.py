"""A fake kubelet with only the device-plugin API; nodes of the testbed have the real kubelet."""

import asyncio
from pathlib import Path
from typing import Any

import grpc

from kfext.gpu.device.kubelet import DEVICE_PLUGIN, KUBELET, POD_RESOURCES, messages

PLUGIN, RESOURCES = messages("v1beta1", DEVICE_PLUGIN), messages("v1", POD_RESOURCES)


class FakeKubelet:
    """Receives registrations of plugins in a folder. `registered`: the requests, not yet read."""

    def __init__(self, folder: Path) -> None:
        self.registered: asyncio.Queue[Any] = asyncio.Queue()
        self._folder = folder
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Start as after a reboot of the node: all sockets in the folder are removed first."""
        for path in self._folder.iterdir():
            path.unlink()
        self._server = grpc.aio.server()
        handlers = {
            "Register": grpc.unary_unary_rpc_method_handler(
                self._register,
                request_deserializer=PLUGIN["RegisterRequest"].FromString,
                response_serializer=PLUGIN["Empty"].SerializeToString,
            )
        }
        service = grpc.method_handlers_generic_handler("v1beta1.Registration", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix://{self._folder / KUBELET}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop serving."""
        assert self._server is not None
        await self._server.stop(grace=None)

    def has_socket(self, endpoint: str) -> bool:
        """Return whether the socket of a plugin exists."""
        return (self._folder / endpoint).exists()

    def channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return a channel to a plugin that has registered."""
        return grpc.aio.insecure_channel(f"unix://{self._folder / endpoint}")

    async def _register(self, request: Any, _: Any) -> Any:
        await self.registered.put(request)
        return PLUGIN["Empty"]()


def list_and_watch(channel: grpc.aio.Channel) -> Any:
    """Return the stream of the devices of a plugin."""
    call = channel.unary_stream(
        "/v1beta1.DevicePlugin/ListAndWatch",
        request_serializer=PLUGIN["Empty"].SerializeToString,
        response_deserializer=PLUGIN["ListAndWatchResponse"].FromString,
    )
    return call(PLUGIN["Empty"]())


async def allocate(channel: grpc.aio.Channel, devices: list[str]) -> Any:
    """Return the plugin's allocation of some devices to one container."""
    call = channel.unary_unary(
        "/v1beta1.DevicePlugin/Allocate",
        request_serializer=PLUGIN["AllocateRequest"].SerializeToString,
        response_deserializer=PLUGIN["AllocateResponse"].FromString,
    )
    return await call(PLUGIN["AllocateRequest"](container_requests=[{"devices_ids": devices}]))
