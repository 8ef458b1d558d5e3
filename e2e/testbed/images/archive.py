"""Container images as archives that `docker load` and `ctr images import` read."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

from e2e.testbed.images.layers import Layer

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# A date in the config would give the same content another identity every day.
_EPOCH = "1970-01-01T00:00:00Z"
_OCI = "application/vnd.oci.image"
_BLOBS = "blobs/sha256"


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
        return _json(content)

    @property
    def digest(self) -> str:
        """What identifies the image: the same for the same layers and the same config."""
        return _sha256(self.config)

    @property
    def full_name(self) -> str:
        """The name as runtimes write it out; nothing is ever fetched by it."""
        return f"docker.io/{'' if '/' in self.name else 'library/'}{self.name}"

    def base(self) -> Image:
        """Return the image without its top layer, under a name of its own."""
        name, _, tag = self.name.rpartition(":")
        return replace(self, name=f"{name}-base:{tag}", layers=self.layers[:-1])


def write_archive(image: Image, output: IO[bytes], *, known: Collection[str] = ()) -> None:
    """Write the image to `output`, which need not be seekable, always as the same bytes.

    The archive is an OCI image layout that has Docker's manifest too. Layers whose digests are in
    `known` are left out; only a containerd that has them can read it then.
    """
    config = image.config
    sizes = {layer.digest: layer.path.stat().st_size for layer in image.layers}
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor("config.v1+json", image.digest, len(config)),
            "layers": [_descriptor("layer.v1.tar", digest, sizes[digest]) for digest in sizes],
        }
    )
    entry = _descriptor("manifest.v1+json", _sha256(manifest), len(manifest))
    entry["annotations"] = {"io.containerd.image.name": image.full_name}
    docker = {
        "Config": f"{_BLOBS}/{image.digest}",
        "RepoTags": [image.name],
        "Layers": [f"{_BLOBS}/{layer.digest}" for layer in image.layers],
    }
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for layer in image.layers:
            if layer.digest not in known:
                with layer.path.open("rb") as content:
                    _add_file(tar, f"{_BLOBS}/{layer.digest}", content, sizes[layer.digest])
        for blob in (config, manifest):
            _add(tar, f"{_BLOBS}/{_sha256(blob)}", blob)
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
        _add(tar, "manifest.json", _json([docker]))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": size}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    _add_file(tar, name, io.BytesIO(content), len(content))


def _add_file(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    tar.addfile(member, content)


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
