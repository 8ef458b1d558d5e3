from pathlib import Path
from typing import Any

import grpc

from kfext.gpu.pod_resources import Held, held_devices
from tests.adapters.gpu.fake_kubelet import RESOURCES

UNITS = [f"0-{unit}" for unit in range(30)]


def one_by_one(resource: str, devices: list[str]) -> list[dict[str, Any]]:
    """Name devices as kubelet does: each by itself."""
    return [{"resource_name": resource, "device_ids": [one]} for one in devices]


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

    async def list_all(_: Any, __: Any) -> Any:
        return RESOURCES["ListPodResourcesResponse"](pod_resources=pods)

    handler = grpc.unary_unary_rpc_method_handler(
        list_all,
        request_deserializer=RESOURCES["ListPodResourcesRequest"].FromString,
        response_serializer=RESOURCES["ListPodResourcesResponse"].SerializeToString,
    )
    server, socket = grpc.aio.server(), tmp_path / "kubelet.sock"
    service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    found = await held_devices(socket)
    await server.stop(grace=None)
    assert found == [
        Held("team", "train", "a", "kfext.dev/gpu-0", frozenset(UNITS)),
        Held("team", "other", "b", "nvidia.com/gpu", frozenset({"GPU-1", "GPU-2"})),
    ]
