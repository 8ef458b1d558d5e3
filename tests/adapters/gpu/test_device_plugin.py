import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest

import kfext.gpu.device.device_plugin as module
from kfext.gpu.device.device_plugin import Allocation, DevicePlugin, Mount, RefusedError
from tests.adapters.gpu.fake_kubelet import FakeKubelet, allocate, listing

RESOURCE = "kfext.dev/gpu-0"


def answer(devices: Sequence[str]) -> Allocation:
    if "bad" in devices:
        raise RefusedError("card 0 has no live reservation")
    return Allocation(
        {"NVIDIA_VISIBLE_DEVICES": "GPU-1"},
        [Mount("/var/lib/kfext/a", "/kfext")],
        ["nvidia.com/gpu=1"],
    )


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[FakeKubelet]:
    made = FakeKubelet(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DevicePlugin]:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.02)
    made = DevicePlugin(RESOURCE, allocate=answer, folder=tmp_path)
    await made.offer({"a": True, "b": False})
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.wait([running])
    assert not (tmp_path / "kfext.dev-gpu-0.sock").exists()


async def endpoint(kubelet: FakeKubelet) -> str:
    """Return the socket of a plugin that has registered, and is still there.

    A kubelet that starts removes it, so that the plugin has to register again.
    """
    async with asyncio.timeout(20):
        while True:
            request = await kubelet.registered.get()
            assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
            if kubelet.sees(request.endpoint):
                return str(request.endpoint)


@pytest.mark.usefixtures("plugin")
async def test_a_container_gets_all_that_is_allocated_to_it(kubelet: FakeKubelet) -> None:
    async with kubelet.channel(await endpoint(kubelet)) as channel:
        (found,) = (await allocate(channel, ["a"])).container_responses
    assert dict(found.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    (mount,) = found.mounts
    assert (mount.host_path, mount.container_path, mount.read_only) == (
        "/var/lib/kfext/a", "/kfext", True
    )  # fmt: skip
    assert [device.name for device in found.cdi_devices] == ["nvidia.com/gpu=1"]


@pytest.mark.usefixtures("plugin")
async def test_what_must_not_be_is_refused_with_the_reason(kubelet: FakeKubelet) -> None:
    async with kubelet.channel(await endpoint(kubelet)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await allocate(channel, ["bad"])
    assert refused.value.details() == "card 0 has no live reservation"


async def test_devices_are_listed_now_and_whenever_they_change(
    kubelet: FakeKubelet, plugin: DevicePlugin
) -> None:
    async with kubelet.channel(await endpoint(kubelet)) as channel, asyncio.timeout(20):
        stream = listing(channel)
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
async def test_it_registers_again_with_a_kubelet_that_was_restarted(kubelet: FakeKubelet) -> None:
    await endpoint(kubelet)
    await kubelet.stop()
    await kubelet.start()
    async with kubelet.channel(await endpoint(kubelet)) as channel:
        await allocate(channel, ["a"])


async def test_it_waits_for_a_kubelet_that_is_not_there_yet(
    tmp_path: Path, plugin: DevicePlugin
) -> None:
    kubelet = FakeKubelet(tmp_path)
    await kubelet.start()
    await endpoint(kubelet)
    await kubelet.stop()


async def test_a_folder_in_which_it_cannot_listen_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.02)
    folder = tmp_path / "not-yet"
    running = asyncio.create_task(DevicePlugin(RESOURCE, allocate=answer, folder=folder).run())
    await asyncio.sleep(0.2)
    assert not running.done()
    folder.mkdir()
    kubelet = FakeKubelet(folder)
    await kubelet.start()
    assert await endpoint(kubelet)
    running.cancel()
    await asyncio.wait([running])
    await kubelet.stop()
