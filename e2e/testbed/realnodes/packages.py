"""The programs that real nodes need, installed from Debian where they are missing."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.testbed import progress
from e2e.testbed.preflight import Unavailable

# Program -> Debian package. Only the packages of missing programs are installed: a machine with
# Docker has a containerd of its own, which Debian's package would replace.
_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "tc": "iproute2",
    "conntrack": "conntrack",
    "ethtool": "ethtool",
    "socat": "socat",
    "busybox": "busybox-static",
    "debootstrap": "debootstrap",
}
_CNI_PACKAGE = "containernetworking-plugins"
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CNI_PLUGINS = ("bridge", "host-local", "loopback")
# Debian asks this script whether a package may start its service; 101 means no.
_POLICY = Path("/usr/sbin/policy-rc.d")
_LOCKED = "Could not get lock"
_LOCK_SECONDS, _LOOK_SECONDS = 300.0, 2.0


def cni_folder() -> Path | None:
    """Return where the CNI plugins lie, None if some are missing."""
    for folder in _CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in _CNI_PLUGINS):
            return folder
    return None


def missing() -> list[str]:
    """Return the Debian packages whose programs this machine lacks."""
    packages = {package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    if cni_folder() is None:
        packages.add(_CNI_PACKAGE)
    return sorted(packages)


def install() -> None:
    """Install what is missing, starting no service and removing no package."""
    packages = missing()
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise Unavailable(
            "real nodes need programs that this machine lacks, and it has no apt-get to install "
            f"them with; in Debian they are called {' '.join(packages)}"
        )
    with progress.step(f"installing Debian packages: {' '.join(packages)}"), _no_services():
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", "--no-remove", *packages)
    if still := missing():
        raise Unavailable(f"installed, yet their programs are not found: {' '.join(still)}")


def _apt_get(*arguments: str) -> None:
    """Run apt-get; while another one has its lock, as of the machine itself, wait for that."""
    waited = 0.0
    while True:
        ended = subprocess.run(
            ["apt-get", "-q", *arguments],
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


@contextmanager
def _no_services() -> Iterator[None]:
    """Keep Debian from starting containerd for the machine: each node starts its own."""
    if _POLICY.exists():
        yield  # somebody has a policy already; it is not ours to change
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
