from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from kfext.gpu.device.pod_resources import Held, IncompleteError, held_devices, offered_devices
from tests.adapters.gpu.fake_kubelet import RESOURCES

UNITS = [f"0-{unit}" for unit in range(30)]


def one_by_one(resource: str, devices: list[str]) -> list[dict[str, Any]]:
    """Name devices as kubelet does: each by itself."""
    return [{"resource_name": resource, "device_ids": [device]} for device in devices]


@asynccontextmanager
async def kubelet(folder: Path, answers: dict[str, tuple[str, Any]]) -> AsyncIterator[Path]:
    """A kubelet that answers questions, each with a message of these fields; yields its socket."""
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


async def test_what_each_container_has_is_read_from_kubelet(tmp_path: Path) -> None:
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
    async with kubelet(tmp_path, answers) as socket:
        found = await held_devices(lambda: {("team", "plain")}, socket)
    assert found == [
        Held("team", "train", "a", "kfext.dev/gpu-0", frozenset(UNITS)),
        Held("team", "other", "b", "nvidia.com/gpu", frozenset({"GPU-1", "GPU-2"})),
    ]


async def test_an_answer_without_a_pod_that_runs_is_not_all_that_there_is(tmp_path: Path) -> None:
    pods = [{"name": "agent", "namespace": "kfext-gpu"}]
    answers = {"List": ("ListPodResources", {"pod_resources": pods})}
    running = {("kfext-gpu", "agent"), ("team", "train")}
    async with kubelet(tmp_path, answers) as socket:
        with pytest.raises(IncompleteError, match="does not list pod team/train"):
            await held_devices(lambda: running, socket)


async def test_the_devices_of_a_resource_are_read_from_kubelet(tmp_path: Path) -> None:
    devices = one_by_one("kfext.dev/gpu-0", UNITS) + one_by_one("nvidia.com/gpu", ["G::0", "G::1"])
    answers = {"GetAllocatableResources": ("AllocatableResources", {"devices": devices})}
    async with kubelet(tmp_path, answers) as socket:
        assert await offered_devices("nvidia.com/gpu", socket) == {"G::0", "G::1"}
        assert await offered_devices("example.com/none", socket) == set()


async def test_an_old_kubelet_does_not_say_which_there_are(tmp_path: Path) -> None:
    async with kubelet(tmp_path, {}) as socket:
        with pytest.raises(grpc.RpcError):
            await offered_devices("nvidia.com/gpu", socket)
