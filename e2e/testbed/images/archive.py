"""Container images as archives that `docker load` and `ctr images import` read."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from e2e.testbed.images.layers import Layer

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# A date in the config would give the same content another identity every day.
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Image:
    """A named stack of layers and how its containers start."""

    name: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> bytes:
        """The image's config file; its SHA-256 identifies the image."""
        environment = {"PATH": _PATH, **self.environment}
        run: dict[str, Any] = {"Env": [f"{name}={environment[name]}" for name in environment]}
        run |= {"Entrypoint": list(self.entrypoint), "Cmd": list(self.command), "User": self.user}
        content = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": _EPOCH,
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{x.digest}" for x in self.layers]},
            "history": [{"created": _EPOCH} for _ in self.layers],
        }
        return json.dumps(content, sort_keys=True).encode()

    @property
    def digest(self) -> str:
        """What identifies the image: the same for the same layers and the same config."""
        return hashlib.sha256(self.config).hexdigest()


def write_archive(image: Image, output: IO[bytes]) -> None:
    """Write the image to `output`, which need not be seekable, always as the same bytes."""
    manifest = {
        "Config": f"{image.digest}.json",
        "RepoTags": [image.name],
        "Layers": [f"{layer.digest}.tar" for layer in image.layers],
    }
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for layer in image.layers:
            member = tarfile.TarInfo(f"{layer.digest}.tar")
            member.size = layer.path.stat().st_size
            with layer.path.open("rb") as content:
                tar.addfile(member, content)
        _add(tar, f"{image.digest}.json", image.config)
        _add(tar, "manifest.json", json.dumps([manifest]).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
