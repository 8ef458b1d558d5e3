"""The allocation of a container that shares a GPU, in the bytes that kubelet reads.

The bytes were encoded by kubelet's own types: `pkg/apis/deviceplugin/v1beta1` of k8s.io/kubelet
0.35.4. No test has a runtime that acts on CDI names: containerd 1.6 of the testbed ignores them.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from kfext.cli.main import agent
from kfext.gpu.agent.pod_sockets import PodSockets
from kfext.gpu.agent.slots import Slots
from kfext.gpu.device.kubelet import AllocatedDevices, DevicePlugin
from kfext.model.gpu import reservation_of, units_of
from kfext.names import GPU_NAMESPACE, NATIVE_GPU
from tests.adapters.gpu.fake_kubelet import PLUGIN, FakeKubelet

NODE, SLOT, CARD = "node-a", 1, "GPU-11"
RESERVED = AllocatedDevices(
    GPU_NAMESPACE, reservation_of(NODE, SLOT), "hold", NATIVE_GPU, frozenset({CARD})
)
ANSWERS = {
    "envvar": (
        "0a85010a270a104b464558545f4750555f534f434b455412132f6b666578742f736f636b65742f616765"
        "6e740a200a164e56494449415f56495349424c455f4445564943455312064750552d313112160a0b2f6b"
        "666578742f686f6f6b12052f686f6f6b180112200a0d2f6b666578742f736f636b6574120d2f736f636b"
        "6574732f312d30301801"
    ),
    "cdi-cri": (
        "0a8e010a270a104b464558545f4750555f534f434b455412132f6b666578742f736f636b65742f616765"
        "6e7412160a0b2f6b666578742f686f6f6b12052f686f6f6b180112200a0d2f6b666578742f736f636b65"
        "74120d2f736f636b6574732f312d303018012a290a276b38732e6465766963652d706c7567696e2e6e76"
        "696469612e636f6d2f6770753d4750552d3131"
    ),
}
"""Device-list strategy of NVIDIA's device plugin -> the answer to Allocate, in hexadecimal."""


class Folders:
    """Stands in for the sockets of sharers."""

    def open_all(self) -> list[str]:
        return []

    def open(self, name: str) -> Path:
        return Path("/sockets") / name


def slots(root: Path, *, cdi: bool) -> Slots:
    made = Slots(
        node=NODE,
        count=2,
        sockets=cast(PodSockets, Folders()),
        hook=Path("/hook"),
        card_files=root / "cards",
        cdi=cdi,
    )
    made.record([RESERVED])
    return made


@pytest.mark.parametrize(("strategy", "want"), ANSWERS.items())
async def test_a_container_gets_its_card_in_the_form_of_nvidia_s_device_plugin(
    strategy: str, want: str, tmp_path: Path
) -> None:
    kubelet = FakeKubelet(tmp_path)
    await kubelet.start()
    allocate = partial(slots(tmp_path, cdi=strategy == "cdi-cri").allocate, SLOT)
    plugin = DevicePlugin("kfext.dev/gpu-1", allocate=allocate, folder=tmp_path)
    running = asyncio.create_task(plugin.run())
    try:
        endpoint = (await kubelet.registered.get()).endpoint
        result = await answer(kubelet, endpoint)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await kubelet.stop()
    assert sorted(of_container(result)) == sorted(of_container(bytes.fromhex(want)))


async def answer(kubelet: FakeKubelet, endpoint: str) -> bytes:
    """Return the plugin's raw answer to a container with 30 units of the slot."""
    request = PLUGIN["AllocateRequest"](container_requests=[{"devices_ids": units_of(SLOT)[:30]}])
    async with kubelet.channel(endpoint) as channel:
        allocate = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        return bytes(await allocate(request.SerializeToString()))


def of_container(answer: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of the answer for the only container; a map has them in any order."""
    ((number, container),) = fields(answer)
    assert number == 1
    return list(fields(container))


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the value of each field of a message with length-delimited fields."""
    while message:
        tag, message = varint(message)
        assert tag & 7 == 2, "the field is length-delimited"
        length, message = varint(message)
        yield tag >> 3, message[:length]
        message = message[length:]


def varint(message: bytes) -> tuple[int, bytes]:
    """Return the varint at the beginning of a message, and the remaining bytes."""
    value = shift = 0
    for at, byte in enumerate(message):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, message[at + 1 :]
    raise ValueError("the message ends within a number")


@pytest.mark.parametrize("written", ["volume-mounts", "cdi-annotations,cdi-cri", "cdi", "envvar,"])
def test_an_unknown_strategy_is_refused_with_the_known_strategies(
    written: str, tmp_path: Path
) -> None:
    arguments = ["--node", "n", "--pod", "p", "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(agent, arguments, env={"DEVICE_LIST_STRATEGY": written})
    assert result.exit_code == 2
    assert all(word in result.output for word in ("DEVICE_LIST_STRATEGY", *ANSWERS))
