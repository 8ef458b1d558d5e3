"""Makes image layers, and the image archives that `docker load` and `ctr images import` read.

Layers are tar files in the cache; a layer is made once for the inputs that its key is computed
from. A lock lets only one process at a time make layers.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import stat
import tarfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, BinaryIO

from e2e.testbed import paths, progress
from e2e.testbed.mounts import unmount_below

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# With a real date in the config, the same content would have a new digest every day.
_EPOCH = "1970-01-01T00:00:00Z"
_OCI = "application/vnd.oci.image"
_BLOBS = "blobs/sha256"


@dataclass(frozen=True)
class Layer:
    """One layer of an image: an uncompressed tar file and its SHA-256 in hexadecimal."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Recipe:
    """How to make a layer.

    `inputs`: everything that the content depends on. `fill`: writes the content into a folder.
    `step`: the step that progress shows while `fill` runs, if it takes long.
    """

    name: str
    inputs: Iterable[str | bytes]
    fill: Callable[[Path], None]
    step: progress.Planned | None = None

    @cached_property
    def _tar(self) -> Path:
        return paths.cache() / "layers" / f"{self.name}-{key(self.inputs)}.tar"

    @property
    def _digest_file(self) -> Path:
        return self._tar.with_suffix(".sha256")

    @property
    def is_made(self) -> bool:
        """Whether the cache has the layer."""
        return self._digest_file.exists()

    def layer(self) -> Layer:
        """Return the layer; make it first if the cache lacks it."""
        with paths.exclusively(self._tar.parent):
            if not self.is_made:
                with progress.step(self.step) if self.step else nullcontext():
                    _make(self._tar, self._digest_file, self.fill)
        return Layer(self._tar, self._digest_file.read_text())


def key(inputs: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in inputs:
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()[:16]


def files_below(*roots: Path) -> list[str | bytes]:
    """Return the names and contents of all files below `roots`, as the inputs of a layer."""
    inputs: list[str | bytes] = []
    for root in roots:
        for file in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if file.is_file() and "__pycache__" not in file.parts:
                inputs += [str(file.relative_to(root.parent)), file.read_bytes()]
    return inputs


def _make(tar_path: Path, digest_file: Path, fill: Callable[[Path], None]) -> None:
    contents = tar_path.with_suffix(".contents")
    _remove(contents)  # left by an interrupted attempt
    try:
        contents.mkdir()
        fill(contents)
        digest = write_layer(contents, tar_path)
        digest_file.write_text(digest)  # written last, because it marks the tar as complete
    finally:
        _remove(contents)


def _remove(contents: Path) -> None:
    unmount_below(contents)  # debootstrap mounts /proc while it works
    shutil.rmtree(contents, ignore_errors=True)


def write_layer(folder: Path, target: Path) -> str:
    """Write the contents of `folder` as a reproducible tar file; return its SHA-256.

    It keeps modification times, in whole seconds, because Python checks compiled files by them.
    """
    with target.open("wb") as file:
        output = _Hashing(file)
        with tarfile.open(fileobj=output, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            for path in sorted(folder.rglob("*")):
                _add(tar, path, str(path.relative_to(folder)))
    return output.digest.hexdigest()


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISSOCK(mode):
        return  # the socket of a program that ran while the folder was made
    member = tar.gettarinfo(path, arcname=name)
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    if member.isreg():
        with path.open("rb") as content:
            tar.addfile(member, content)
    else:
        tar.addfile(member)


class _Hashing(io.RawIOBase):
    """A writable file that computes the SHA-256 of its content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)


@dataclass(frozen=True)
class Image:
    """A container image: its layers, the lowest first, and its configuration."""

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
        """The SHA-256 of the config; it is equal for the same layers and configuration."""
        return _sha256(self.config)

    @property
    def full_name(self) -> str:
        """The name with the registry that runtimes add; nothing is ever pulled from it."""
        return f"docker.io/{'' if '/' in self.name else 'library/'}{self.name}"

    def base(self) -> Image:
        """Return an image with all layers except the top layer, with `-base` in its name."""
        name, _, tag = self.name.rpartition(":")
        return replace(self, name=f"{name}-base:{tag}", layers=self.layers[:-1])


def write_archive(image: Image, output: IO[bytes], *, known: Collection[str] = ()) -> None:
    """Write the image as a reproducible archive to `output`, which need not be seekable.

    The archive is an OCI image layout with Docker's manifest. Layers with digests in `known` are
    omitted; only a containerd that has these layers can then import it.
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
        _add_bytes(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for layer in image.layers:
            if layer.digest not in known:
                with layer.path.open("rb") as content:
                    _add_file(tar, f"{_BLOBS}/{layer.digest}", content, sizes[layer.digest])
        for blob in (config, manifest):
            _add_bytes(tar, f"{_BLOBS}/{_sha256(blob)}", blob)
        _add_bytes(tar, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
        _add_bytes(tar, "manifest.json", _json([docker]))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": size}


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    _add_file(tar, name, io.BytesIO(content), len(content))


def _add_file(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    tar.addfile(member, content)


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
