"""Runs apt-get, and unpacks programs from Debian packages into the cache.

Unpacking does not run the scripts of a package, so no service starts.
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
"""Program -> the Debian package that contains it."""
_LOCKED = "Could not get lock"
_LOCK_SECONDS, _POLL_SECONDS = 300.0, 2.0


def resolve(name: str) -> Path:
    """Return a program of PACKAGES; unpack it first if it is missing. Raises Unavailable."""
    if installed := shutil.which(name):
        return Path(installed)
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
    """Run apt-get in `folder`; wait while another has the lock. Raises Unavailable."""
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
            output = "\n".join(ended.stderr.splitlines()[-5:])
            raise Unavailable(f"`apt-get {' '.join(arguments)}` failed:\n{output}")
        time.sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
