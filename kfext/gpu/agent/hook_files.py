"""The files of the hook, laid out on the node as a job's Python finds them."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import kfext.gpu.hook
from kfext.core.admission.gpu import BUSYBOX

_START = "sitecustomize.py"
_PACKAGE = "kfext_hook"


def lay_out(root: Path, *, busybox: Path) -> Path:
    """Lay out this version of the hook under `root`; return its folder, to be first on PYTHONPATH.

    The folder also gets the static binary with the shell that starts jobs with the hook. Other
    versions stay, because running processes import from them. A file of this version that lost its
    content, as after a power failure, is replaced.
    """
    (source,) = map(Path, kfext.gpu.hook.__path__)
    files = {path.name: path.read_bytes() for path in sorted(source.glob("*.py"))}
    files[BUSYBOX] = busybox.read_bytes()
    parts = (name.encode() + data for name, data in files.items())
    folder = root / hashlib.sha256(b"".join(parts)).hexdigest()[:12]
    if folder.is_dir():
        _fill(folder, files)
        return folder
    made = root / f".{folder.name}"
    shutil.rmtree(made, ignore_errors=True)  # left by an agent that was killed
    made.mkdir(parents=True)
    _fill(made, files)
    made.rename(folder)
    return folder


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files that are missing or differ, each in one step."""
    (folder / _PACKAGE).mkdir(exist_ok=True)
    for path in (folder, folder / _PACKAGE):
        path.chmod(0o755)  # a job's container may run as any user
    for name, data in files.items():
        path = folder / name if name in {_START, BUSYBOX} else folder / _PACKAGE / name
        if path.is_file() and path.read_bytes() == data:
            continue
        unfinished = path.with_name(f".{name}")
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.chmod(0o755 if name == BUSYBOX else 0o644)
        unfinished.replace(path)
