"""Root file systems from Debian packages, the bases of our images."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.testbed.images import apt
from e2e.testbed.preflight import Unavailable

SUITE = "bookworm"
PYTHON = "3.11"  # the suite's; what pip installs for an image must match it
APT = Path("/etc/apt")
_MIRROR = "KFEXT_DEBIAN_MIRROR"

# Not needed to run anything, and nearly a third of the size.
BALLAST = (
    "usr/lib/libtorch-test",
    "usr/share/doc",
    "usr/share/fonts",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
)


def mirror(suite: str = SUITE) -> str:
    """Return where Debian packages come from: what KFEXT_DEBIAN_MIRROR names, else apt's own.

    Raises Unavailable if neither says.
    """
    found = os.environ.get(_MIRROR) or apt.debian_mirror(suite, APT)
    if not found:
        raise Unavailable(
            f"no mirror of Debian is known, since apt on this machine ({APT}) has none: set "
            f"{_MIRROR}=http://HOST/PATH, under which dists/{suite}/Release is found"
        )
    return found


def bootstrap(folder: Path, packages: Sequence[str], *, suite: str = SUITE) -> None:
    """Fill `folder` with a minimal Debian of a suite, and `packages`."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    ended = subprocess.run(
        [*command, suite, str(folder), mirror(suite)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    if ended.returncode != 0:
        said = "\n".join((ended.stderr or ended.stdout).splitlines()[-5:])
        raise Unavailable(
            f"debootstrap failed: {said}\nIs {mirror(suite)} reachable? {_MIRROR} names another."
        )
    trim(folder)


def trim(folder: Path) -> None:
    """Remove what no container needs, and the device nodes: containers get their own."""
    for path in (*BALLAST, "dev"):
        shutil.rmtree(folder / path, ignore_errors=True)
    for path in ("dev", "var/cache", "var/log"):
        (folder / path).mkdir(exist_ok=True)


def repair_torchrun(folder: Path) -> None:
    """Make Debian's torchrun work with its Python.

    PyTorch 1.13 iterates a flag type and expects to meet its zero member, which Python 3.11 leaves
    out; torchrun then fails with "'NoneType' object has no attribute 'get'".
    """
    package = "usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing"
    file = folder / package / "api.py"
    source = file.read_text()
    faulty, repaired = "for s in Std:", "for s in Std.__members__.values():"
    if source.count(faulty) != 1:
        raise Unavailable(f"{file.name} of Debian's python3-torch is not the one we can repair")
    file.write_text(source.replace(faulty, repaired))
    for compiled in file.parent.glob("__pycache__/api.*.pyc"):
        compiled.unlink()
