"""Image layers: tar files in the cache, each made once for the inputs its key stands for."""

import hashlib
import io
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from e2e.testbed import paths
from e2e.testbed.images.lock import exclusively
from e2e.testbed.mounts import unmount_below


@dataclass(frozen=True)
class Layer:
    """One layer of an image: an uncompressed tar file and its SHA-256 in hexadecimal."""

    path: Path
    digest: str


def layer(name: str, inputs: Iterable[str | bytes], fill: Callable[[Path], None]) -> Layer:
    """Return the layer `name` made from `inputs`; if the cache lacks it, `fill` fills a folder."""
    folder = paths.cache() / "layers"
    sealed = folder / f"{name}-{key(inputs)}.tar"
    noted = sealed.with_suffix(".sha256")
    with exclusively(folder):
        if not noted.exists():
            _make(sealed, noted, fill)
    return Layer(sealed, noted.read_text())


def key(inputs: Iterable[str | bytes]) -> str:
    """Return a short name for a sequence of inputs; other inputs or another order, another name."""
    digest = hashlib.sha256()
    for part in inputs:
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()[:16]


def files_below(*roots: Path) -> list[str | bytes]:
    """Return names and contents of all files below `roots`, as inputs of a layer."""
    found: list[str | bytes] = []
    for root in roots:
        for file in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if file.is_file() and "__pycache__" not in file.parts:
                found += [str(file.relative_to(root.parent)), file.read_bytes()]
    return found


def _make(sealed: Path, noted: Path, fill: Callable[[Path], None]) -> None:
    contents = sealed.with_suffix(".contents")
    _remove(contents)  # of an attempt that was killed
    try:
        contents.mkdir()
        fill(contents)
        digest = write_layer(contents, sealed)
        noted.write_text(digest)  # last: it says that the tar is whole
    finally:
        _remove(contents)


def _remove(contents: Path) -> None:
    unmount_below(contents)  # debootstrap mounts /proc while it works
    shutil.rmtree(contents, ignore_errors=True)


def write_layer(folder: Path, target: Path) -> str:
    """Write the contents of `folder` as a tar file, the same bytes every time; return its SHA-256.

    Modification times are kept, in whole seconds: Python trusts its compiled files by them.
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
        return  # of a program that ran while the folder was made
    member = tar.gettarinfo(path, arcname=name)
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    if member.isreg():
        with path.open("rb") as content:
            tar.addfile(member, content)
    else:
        tar.addfile(member)


class _Hashing(io.RawIOBase):
    """A file to write to that computes the SHA-256 of what passes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)
