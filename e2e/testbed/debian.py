"""apt-get, and programs of Debian packages that are unpacked into the cache.

A package that is only unpacked runs none of its scripts, so no service starts.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from e2e.testbed import paths, progress
from e2e.testbed.preflight import Unavailable

PACKAGES = {"promtool": "prometheus"}
"""Program -> the package that it is unpacked from."""
_LOCKED = "Could not get lock"
_LOCK_SECONDS, _LOOK_SECONDS = 300.0, 2.0


def resolve(name: str) -> Path:
    """Return a program of PACKAGES, unpacked now if it is nowhere. Raises Unavailable."""
    if found := shutil.which(name):
        return Path(found)
    target = paths.cache() / "debian" / name
    with paths.exclusively(target.parent):
        if not target.exists():
            with progress.step(f"unpacking {name} of Debian's package {PACKAGES[name]}"):
                _unpack(PACKAGES[name], target)
    return target


def _unpack(package: str, target: Path) -> None:
    """Unpack the program with the name of `target` from a package. Raises Unavailable."""
    if shutil.which("apt-get") is None:
        raise Unavailable(f"{target.name} is missing; in Debian it is part of {package}")
    with TemporaryDirectory(dir=target.parent) as folder:
        apt_get("update")
        apt_get("download", package, folder=Path(folder))
        (archive,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg", "-x", archive, f"{folder}/tree"], check=True)
        Path(folder, "tree/usr/bin", target.name).rename(target)


def apt_get(*arguments: str, folder: Path | None = None) -> None:
    """Run apt-get in `folder`; while another apt-get has the lock, such as the machine's own, wait.

    Raises Unavailable.
    """
    waited = 0.0
    while True:
        ended = subprocess.run(
            ["apt-get", "-q", *arguments],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        if ended.returncode == 0:
            return
        if _LOCKED not in ended.stderr or waited >= _LOCK_SECONDS:
            said = "\n".join(ended.stderr.splitlines()[-5:])
            raise Unavailable(f"`apt-get {' '.join(arguments)}` failed:\n{said}")
        time.sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS
