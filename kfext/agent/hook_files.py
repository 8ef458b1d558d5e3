"""The files of the hook, laid out on the node as a job's Python finds them."""

import hashlib
import shutil
from pathlib import Path

import kfext.hook
from kfext.core.admission.hooked import BUSYBOX

_START = "sitecustomize.py"
_PACKAGE = "kfext_hook"


def lay_out(root: Path, *, busybox: Path) -> Path:
    """Lay out this version of the hook under `root`; return its folder, to be first on PYTHONPATH.

    The static binary whose shell starts jobs with it is put beside it. Other versions stay as they
    are: processes that run import from them.
    """
    (source,) = map(Path, kfext.hook.__path__)
    files = {path.name: path.read_bytes() for path in sorted(source.glob("*.py"))}
    binary = busybox.read_bytes()
    parts = (name.encode() + data for name, data in [*files.items(), (BUSYBOX, binary)])
    digest = hashlib.sha256(b"".join(parts))
    folder = root / digest.hexdigest()[:12]
    if folder.is_dir():
        return folder
    made = root / f".{folder.name}"
    shutil.rmtree(made, ignore_errors=True)  # of an agent that was killed meanwhile
    (made / _PACKAGE).mkdir(parents=True)
    for name, data in files.items():
        path = made / name if name == _START else made / _PACKAGE / name
        path.write_bytes(data)
        path.chmod(0o644)
    for path in (made, made / _PACKAGE):
        path.chmod(0o755)  # the user of a job's container may be any
    (made / BUSYBOX).write_bytes(binary)
    (made / BUSYBOX).chmod(0o755)
    made.rename(folder)
    return folder
