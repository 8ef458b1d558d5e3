#!/usr/bin/env python3
"""A stand-in for NVIDIA's container runtime; containerd runs it as its runc.

A container with NVIDIA_VISIBLE_DEVICES can use the GPUs of this machine and the driver's libraries.
The folders of the machine in MACHINE_FOLDERS, separated by `:`, are mounted read-only at the same
paths, so that a job can use a PyTorch for CUDA that is in no image. This script needs only the
standard library.
"""

import glob
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Object = dict[str, Any]
VISIBLE, FOLDERS = "NVIDIA_VISIBLE_DEVICES", "MACHINE_FOLDERS"
_NO_DEVICES = ("", "none", "void")
_DEVICES = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm*", "/dev/nvidia-modeset")
_LIBRARIES = ("libcuda.so*", "libnvidia-*.so*")
_LIBRARIES_INSIDE = "/run/nvidia/libraries"
_DRIVER = Path("/usr/local/nvidia/lib64")
"""Where some machines have the driver's libraries; on others `ldconfig -p` lists them."""


def with_gpus(
    config: Object, *, devices: Mapping[str, tuple[int, int]], libraries: Sequence[Path]
) -> Object:
    """Return the OCI configuration of a container, with the GPUs if it asks for any.

    `devices`: the major and minor numbers of each device, by path.
    """
    env = dict(pair.partition("=")[::2] for pair in config["process"].get("env", ()))
    if env.get(VISIBLE, "") in _NO_DEVICES:
        return config
    mounts = [
        *config.get("mounts", ()),
        *(_bind(str(library), f"{_LIBRARIES_INSIDE}/{library.name}") for library in libraries),
        *(_bind(folder, folder) for folder in env.get(FOLDERS, "").split(":") if folder),
    ]
    env["LD_LIBRARY_PATH"] = ":".join(filter(None, [_LIBRARIES_INSIDE, env.get("LD_LIBRARY_PATH")]))
    linux = dict(config["linux"])
    resources = dict(linux.get("resources", {}))
    resources["devices"] = [
        *resources.get("devices", ()),
        *(
            {"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"}
            for major, minor in devices.values()
        ),
    ]
    linux["devices"] = [
        *linux.get("devices", ()),
        *(
            {"path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o666}
            for path, (major, minor) in devices.items()
        ),
    ]
    process = {**config["process"], "env": [f"{name}={value}" for name, value in env.items()]}
    return {
        **config,
        "process": process,
        "mounts": mounts,
        "linux": {**linux, "resources": resources},
    }


def _bind(source: str, target: str) -> Object:
    options = ["rbind", "ro", "nosuid"]
    return {"destination": target, "source": source, "type": "bind", "options": options}


def _devices() -> dict[str, tuple[int, int]]:
    paths = sorted(path for pattern in _DEVICES for path in glob.glob(pattern))
    statuses = {path: os.stat(path) for path in paths}
    return {
        path: (os.major(status.st_rdev), os.minor(status.st_rdev))
        for path, status in statuses.items()
        if stat.S_ISCHR(status.st_mode)
    }


def _libraries() -> list[Path]:
    command = ["ldconfig", "-p"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    listed = [line.rpartition(" ")[2] for line in known.splitlines() if "libcuda.so.1" in line]
    folders = [_DRIVER, *(Path(path).parent for path in listed)]
    folder = next((folder for folder in folders if (folder / "libcuda.so.1").exists()), None)
    if folder is None:
        return []
    return sorted(path for pattern in _LIBRARIES for path in folder.glob(pattern))


def main() -> None:
    """Edit the configuration if a container is to be created, then run runc."""
    arguments = sys.argv[1:]
    if "create" in arguments:
        bundle = arguments[arguments.index("--bundle") + 1]
        path = Path(bundle) / "config.json"
        config = json.loads(path.read_text())
        config = with_gpus(config, devices=_devices(), libraries=_libraries())
        path.write_text(json.dumps(config))
    os.execvp("runc", ["runc", *arguments])


if __name__ == "__main__":
    main()
