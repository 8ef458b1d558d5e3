"""The files of the hook, laid out on the node so that a job's Python finds them."""

import hashlib
import os
import shutil
from pathlib import Path

import kfext.gpu.hook
from kfext.core.admission.gpu import BUSYBOX

_START = "sitecustomize.py"
_PACKAGE = "kfext_hook"


def lay_out(root: Path, *, busybox: Path) -> Path:
    """Copy this version of the hook to a folder under `root`, to be first on PYTHONPATH; return it.

    `busybox`: a static binary for the same folder; its shell starts jobs with the hook. The folder
    appears once all files are on disk. Other versions remain: running processes import from them.
    """
    (source,) = map(Path, kfext.gpu.hook.__path__)
    files = {path.name: path.read_bytes() for path in sorted(source.glob("*.py"))}
    files[BUSYBOX] = busybox.read_bytes()
    contents = (name.encode() + data for name, data in files.items())
    folder = root / hashlib.sha256(b"".join(contents)).hexdigest()[:12]
    if folder.is_dir():
        return folder
    unfinished = root / f".{folder.name}"
    shutil.rmtree(unfinished, ignore_errors=True)  # left by an agent that was killed
    (unfinished / _PACKAGE).mkdir(parents=True)
    for path in (unfinished, unfinished / _PACKAGE):
        path.chmod(0o755)  # a job's container may run as any user
    for name, data in files.items():
        in_package = name not in {_START, BUSYBOX}
        path = unfinished / _PACKAGE / name if in_package else unfinished / name
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o755 if name == BUSYBOX else 0o644)
    unfinished.rename(folder)
    return folder
