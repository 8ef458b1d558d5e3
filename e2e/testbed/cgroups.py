"""Control groups of our own: make, limit, read, empty and remove them, on cgroup v1 and v2.

A cgroup is named by its path below the root, for instance "/kfx0-node-0". On v1 the same path
exists in every hierarchy (cpu, memory, ...), on v2 there is one hierarchy.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 100_000
_PATIENCE_SECONDS = 60.0


def unified() -> bool:
    """Say whether this machine uses cgroup v2 (a v1 machine may mount an idle v2 besides)."""
    return (_ROOT / "cgroup.controllers").exists()


def hierarchies(mounts: str | None = None) -> list[Path]:
    """Return where cgroups are mounted: one folder on v2, one for each hierarchy on v1.

    An idle v2 beside v1 is one more hierarchy: runc makes cgroups there as well.
    """
    if mounts is None:
        if unified():
            return [_ROOT]
        mounts = Path("/proc/mounts").read_text()
    entries = [line.split() for line in mounts.splitlines()]
    return [Path(entry[1]) for entry in entries if entry[2] in ("cgroup", "cgroup2")]


def make_group_of_processes(path: str) -> None:
    """Make a cgroup below the root that processes enter, without a limit."""
    _make(path)


def make_group_of_groups(path: str, *, millicores: int) -> None:
    """Make a cgroup below the root for cgroups; all in it together get at most `millicores`.

    On v2 a cgroup holds either processes or cgroups with controllers, never both.
    """
    _make(path)
    if unified():
        _delegate(path)
    _limit(path, millicores)


def pin(path: str, *, cpu: int) -> None:
    """Have a cgroup and all below it run on one CPU alone, which counts from 0."""
    top = _folder(_ROOT, path) if unified() else _file("cpuset.cpus", path).parent
    # On v1 a cgroup has no CPU that its parent lacks, so they are changed from below.
    below = [] if unified() else [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]
    for folder in below or [top]:
        (folder / "cpuset.cpus").write_text(str(cpu))


def put_first(path: str) -> None:
    """Have a cgroup get the CPU before anything beside it."""
    if unified():
        (_folder(_ROOT, path) / "cpu.weight").write_text("10000")
    else:
        _file("cpu.shares", path).write_text("262144")


def procs_files(path: str) -> list[Path]:
    """Return the files that a process writes its id to, to enter the cgroup."""
    return [_folder(hierarchy, path) / "cgroup.procs" for hierarchy in hierarchies()]


def cpu_seconds(path: str) -> float:
    """Return the CPU time that everything in the cgroup has used so far."""
    if unified():
        statistics = (_folder(_ROOT, path) / "cpu.stat").read_text().split()
        return int(statistics[statistics.index("usage_usec") + 1]) / 1e6
    return int(_file("cpuacct.usage", path).read_text()) / 1e9


def millicores(path: str) -> int | None:
    """Return what everything in the cgroup may use together, or None without a limit."""
    if unified():
        quota, period = (_folder(_ROOT, path) / "cpu.max").read_text().split()
    else:
        quota = _file("cpu.cfs_quota_us", path).read_text().strip()
        period = _file("cpu.cfs_period_us", path).read_text()
    return None if quota in {"max", "-1"} else int(quota) * 1000 // int(period)


def weight(path: str) -> int:
    """Return what the cgroup counts among its neighbours: 1 to 10000 on v2, 2 to 262144 on v1."""
    file = _folder(_ROOT, path) / "cpu.weight" if unified() else _file("cpu.shares", path)
    return int(file.read_text())


def members(path: str) -> set[int]:
    """Return the ids of the processes in the cgroup and below it, in any hierarchy."""
    return set(_members(path))


def kill_members(path: str) -> None:
    """Kill every process in the cgroup and below it, and wait until the last is gone."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while pids := members(path):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise OSError(f"processes in cgroup {path} do not end: {sorted(pids)}")
        time.sleep(0.02)  # they may have forked meanwhile: look again


def remove_cgroup(path: str) -> None:
    """Kill what is in the cgroup and remove it with all below; one already gone is fine."""
    kill_members(path)
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(_folder(hierarchy, path), topdown=False):
            _remove(Path(folder))


def _make(path: str) -> None:
    for hierarchy in hierarchies():
        _folder(hierarchy, path).mkdir(exist_ok=True)
    if not unified():
        _inherit_cpuset(path)


def _remove(folder: Path) -> None:
    """Remove one empty cgroup; the kernel says "busy" for a moment after its last process."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _folder(hierarchy: Path, path: str) -> Path:
    name = path.strip("/")
    if not name:
        raise ValueError("the root cgroup is the machine's, not the testbed's")
    return hierarchy / name


def _file(name: str, path: str) -> Path:
    """Return the v1 control file `name`, in whichever hierarchy has it."""
    for hierarchy in hierarchies():
        candidate = _folder(hierarchy, path) / name
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"no cgroup hierarchy offers {name}")


def _members(path: str) -> Iterator[int]:
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(_folder(hierarchy, path)):
            try:
                yield from map(int, (Path(folder) / "cgroup.procs").read_text().split())
            except OSError:
                continue  # removed while we looked


def _limit(path: str, millicores: int) -> None:
    quota = millicores * _PERIOD_MICROSECONDS // 1000
    if unified():
        (_folder(_ROOT, path) / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
        return
    _file("cpu.cfs_period_us", path).write_text(str(_PERIOD_MICROSECONDS))
    _file("cpu.cfs_quota_us", path).write_text(str(quota))


def _inherit_cpuset(path: str) -> None:
    """Give a new v1 cpuset the machine's CPUs and memory; it is born with none."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        own = _file(name, path)
        own.write_text((own.parent.parent / name).read_text())


def _delegate(path: str) -> None:
    """Make the v2 controllers available in the cgroup and below it, where they exist."""
    available = (_ROOT / "cgroup.controllers").read_text().split()
    for parent in (_ROOT, _folder(_ROOT, path)):
        for controller in available:
            try:
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                continue  # kubelet names the controller that it misses; others are not needed
