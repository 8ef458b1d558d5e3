import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import kfext.gpu.device.kubelet as module
from kfext.gpu.device.kubelet import (
    AllocatedDevices,
    Allocation,
    DevicePlugin,
    IncompleteError,
    RefusedError,
    allocatable_devices,
    allocated_devices,
)
from tests.adapters.gpu.fake_kubelet import RESOURCES, FakeKubelet, allocate, list_and_watch

RESOURCE = "kfext.dev/gpu-0"


def allocation(devices: Sequence[str]) -> Allocation:
    """Return the allocation of a container; the device "bad" is refused."""
    if "bad" in devices:
        raise RefusedError("card 0 has no live reservation")
    return Allocation(
        {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, {"/var/lib/kfext/a": "/kfext"}, ["nvidia.com/gpu=1"]
    )


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[FakeKubelet]:
    started = FakeKubelet(tmp_path)
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DevicePlugin]:
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.02)
    started = DevicePlugin(RESOURCE, allocate=allocation, folder=tmp_path)
    await started.offer({"a": True, "b": False})
    running = asyncio.create_task(started.run())
    yield started
    running.cancel()
    await asyncio.wait([running])
    assert not (tmp_path / "kfext.dev-gpu-0.sock").exists()


async def endpoint(kubelet: FakeKubelet) -> str:
    """Wait until a plugin has registered a socket that exists; return the socket's name.

    A kubelet removes all sockets when it starts, so the plugin has to register again.
    """
    async with asyncio.timeout(20):
        while True:
            request = await kubelet.registered.get()
            assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
            if kubelet.has_socket(request.endpoint):
                return str(request.endpoint)


@pytest.mark.usefixtures("plugin")
async def test_a_container_gets_all_that_its_allocation_lists(kubelet: FakeKubelet) -> None:
    async with kubelet.channel(await endpoint(kubelet)) as channel:
        (result,) = (await allocate(channel, ["a"])).container_responses
    assert dict(result.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    (mount,) = result.mounts
    assert (mount.host_path, mount.container_path, mount.read_only) == (
        "/var/lib/kfext/a", "/kfext", True
    )  # fmt: skip
    assert [device.name for device in result.cdi_devices] == ["nvidia.com/gpu=1"]


@pytest.mark.usefixtures("plugin")
async def test_a_refused_allocation_fails_with_the_reason(kubelet: FakeKubelet) -> None:
    async with kubelet.channel(await endpoint(kubelet)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await allocate(channel, ["bad"])
    assert refused.value.details() == "card 0 has no live reservation"


async def test_kubelet_gets_the_devices_at_once_and_after_each_change(
    kubelet: FakeKubelet, plugin: DevicePlugin
) -> None:
    async with kubelet.channel(await endpoint(kubelet)) as channel, asyncio.timeout(20):
        stream = list_and_watch(channel)
        first = await stream.read()
        assert {device.ID: device.health for device in first.devices} == {
            "a": "Healthy",
            "b": "Unhealthy",
        }
        await plugin.offer({"a": False})
        second = await stream.read()
        assert {device.ID: device.health for device in second.devices} == {"a": "Unhealthy"}
        stream.cancel()


@pytest.mark.usefixtures("plugin")
async def test_a_plugin_registers_again_with_a_restarted_kubelet(kubelet: FakeKubelet) -> None:
    await endpoint(kubelet)
    await kubelet.stop()
    await kubelet.start()
    async with kubelet.channel(await endpoint(kubelet)) as channel:
        await allocate(channel, ["a"])


async def test_a_plugin_waits_for_a_missing_kubelet(tmp_path: Path, plugin: DevicePlugin) -> None:
    kubelet = FakeKubelet(tmp_path)
    await kubelet.start()
    await endpoint(kubelet)
    await kubelet.stop()


async def test_no_socket_remains_after_a_cancellation_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.002)
    for turns in range(60):
        plugin = DevicePlugin(RESOURCE, allocate=allocation, folder=tmp_path)
        running = asyncio.create_task(plugin.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert not (tmp_path / "kfext.dev-gpu-0.sock").exists()


async def test_a_plugin_tries_again_until_it_can_listen_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.02)
    folder = tmp_path / "not-yet"
    running = asyncio.create_task(DevicePlugin(RESOURCE, allocate=allocation, folder=folder).run())
    await asyncio.sleep(0.2)
    assert not running.done()
    folder.mkdir()
    kubelet = FakeKubelet(folder)
    await kubelet.start()
    assert await endpoint(kubelet)
    running.cancel()
    await asyncio.wait([running])
    await kubelet.stop()


UNITS = [f"0-{unit}" for unit in range(30)]


def one_by_one(resource: str, devices: list[str]) -> list[dict[str, Any]]:
    """List devices as kubelet does: each in an entry of its own."""
    return [{"resource_name": resource, "device_ids": [device]} for device in devices]


@asynccontextmanager
async def pod_resources(folder: Path, answers: dict[str, tuple[str, Any]]) -> AsyncIterator[Path]:
    """Serve the pod-resources API; yield its socket.

    `answers`: for each method, the prefix of its messages' names, and the fields of its answer.
    """
    handlers = {}
    for method, (message, fields) in answers.items():
        answer = RESOURCES[f"{message}Response"](**fields)

        async def reply(_: Any, __: Any, answer: Any = answer) -> Any:
            return answer

        handlers[method] = grpc.unary_unary_rpc_method_handler(
            reply,
            request_deserializer=RESOURCES[f"{message}Request"].FromString,
            response_serializer=RESOURCES[f"{message}Response"].SerializeToString,
        )
    server, socket = grpc.aio.server(), folder / "kubelet.sock"
    service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    yield socket
    await server.stop(grace=None)


async def test_the_devices_of_each_container_are_read_from_kubelet(tmp_path: Path) -> None:
    shares = one_by_one("kfext.dev/gpu-0", UNITS)
    cards = one_by_one("nvidia.com/gpu", ["GPU-1", "GPU-2"])
    pods = [
        {"name": "train", "namespace": "team", "containers": [{"name": "a", "devices": shares}]},
        {
            "name": "other",
            "namespace": "team",
            "containers": [{"name": "a"}, {"name": "b", "devices": cards}],
        },
        {"name": "plain", "namespace": "team"},
    ]

    answers = {"List": ("ListPodResources", {"pod_resources": pods})}
    async with pod_resources(tmp_path, answers) as socket:
        result = await allocated_devices(lambda: {("team", "plain")}, socket)
    assert result == [
        AllocatedDevices("team", "train", "a", "kfext.dev/gpu-0", frozenset(UNITS)),
        AllocatedDevices("team", "other", "b", "nvidia.com/gpu", frozenset({"GPU-1", "GPU-2"})),
    ]


async def test_an_answer_without_a_running_pod_is_incomplete(tmp_path: Path) -> None:
    pods = [{"name": "agent", "namespace": "kfext-gpu"}]
    answers = {"List": ("ListPodResources", {"pod_resources": pods})}
    running = {("kfext-gpu", "agent"), ("team", "train")}
    async with pod_resources(tmp_path, answers) as socket:
        with pytest.raises(IncompleteError, match="does not list pod team/train"):
            await allocated_devices(lambda: running, socket)


async def test_the_allocatable_devices_of_a_resource_are_read_from_kubelet(tmp_path: Path) -> None:
    devices = one_by_one("kfext.dev/gpu-0", UNITS) + one_by_one("nvidia.com/gpu", ["G::0", "G::1"])
    answers = {"GetAllocatableResources": ("AllocatableResources", {"devices": devices})}
    async with pod_resources(tmp_path, answers) as socket:
        assert await allocatable_devices("nvidia.com/gpu", socket) == {"G::0", "G::1"}
        assert await allocatable_devices("example.com/none", socket) == set()


async def test_a_kubelet_without_allocatable_devices_raises_an_error(tmp_path: Path) -> None:
    async with pod_resources(tmp_path, {}) as socket:
        with pytest.raises(grpc.RpcError):
            await allocatable_devices("nvidia.com/gpu", socket)
