from pathlib import Path
from typing import Any

import pytest

from e2e.gpu.nvidia_runtime import FOLDERS, VISIBLE, with_gpus

DEVICES = {"/dev/nvidia0": (195, 0), "/dev/nvidiactl": (195, 255)}
LIBRARIES = [Path("/usr/lib/libcuda.so.1")]
Object = dict[str, Any]


def container(**env: str) -> Object:
    return {
        "process": {"args": ["train"], "env": [f"{name}={value}" for name, value in env.items()]},
        "mounts": [{"destination": "/proc"}],
        "linux": {"resources": {"devices": [{"allow": False}]}, "namespaces": []},
    }


def result_of(config: Object) -> Object:
    return with_gpus(config, devices=DEVICES, libraries=LIBRARIES)


@pytest.mark.parametrize("env", [{}, {VISIBLE: ""}, {VISIBLE: "void"}, {VISIBLE: "none"}], ids=str)
def test_a_container_without_a_gpu_request_is_not_changed(env: dict[str, str]) -> None:
    config = container(**env)
    assert result_of(config) == config


def test_a_container_with_a_gpu_request_gets_the_devices_and_the_driver_libraries() -> None:
    result = result_of(container(**{VISIBLE: "GPU-1", "LD_LIBRARY_PATH": "/own"}))
    linux = result["linux"]
    assert [device["path"] for device in linux["devices"]] == list(DEVICES)
    assert [rule["allow"] for rule in linux["resources"]["devices"]] == [False, True, True]
    assert linux["namespaces"] == []
    inside = "/run/nvidia/libraries"
    assert [mount["destination"] for mount in result["mounts"]] == [
        "/proc",
        f"{inside}/libcuda.so.1",
    ]
    assert f"LD_LIBRARY_PATH={inside}:/own" in result["process"]["env"]


def test_a_container_gets_the_folders_of_the_machine_that_it_requests_read_only() -> None:
    result = result_of(container(**{VISIBLE: "all", FOLDERS: "/opt:/usr"}))
    mounts = {mount["destination"]: mount for mount in result["mounts"][2:]}
    assert mounts.keys() == {"/opt", "/usr"}
    assert all("ro" in mount["options"] for mount in mounts.values())
    assert mounts["/usr"]["source"] == "/usr"
