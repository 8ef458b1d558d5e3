"""Makes, limits, reads, empties and removes the testbed's cgroups, on cgroup v1 and v2.

A cgroup is named by its path below the root, for instance "/kfx0-node-0". On v1 the same path
exists in every hierarchy (cpu, memory, ...); on v2 there is only one hierarchy.
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
    """Return whether this machine uses cgroup v2; a v1 machine may also mount an idle v2."""
    return (_ROOT / "cgroup.controllers").exists()


def hierarchies(mounts: str | None = None) -> list[Path]:
    """Return the mount points of cgroups: one folder on v2, one for each hierarchy on v1.

    On v1 an idle v2 counts as a hierarchy, because runc makes cgroups there too.
    """
    if mounts is None:
        if unified():
            return [_ROOT]
        mounts = Path("/proc/mounts").read_text()
    entries = [line.split() for line in mounts.splitlines()]
    return [Path(entry[1]) for entry in entries if entry[2] in ("cgroup", "cgroup2")]


def make_group_of_processes(path: str) -> None:
    """Make a cgroup that will contain processes, without a limit."""
    _make(path)


def make_group_of_groups(path: str, *, millicores: int) -> None:
    """Make a cgroup that will contain cgroups, limited to `millicores` together.

    On v2 a cgroup contains either processes or cgroups with controllers, never both.
    """
    _make(path)
    if unified():
        _delegate(path)
    _limit(path, millicores)


def pin(path: str, *, cpu: int) -> None:
    """Restrict a cgroup and all cgroups below it to one CPU, counted from 0."""
    top = _folder(_ROOT, path) if unified() else _file("cpuset.cpus", path).parent
    # On v1 a child may only use CPUs of its parent, so the lowest cgroups are changed first.
    below = [] if unified() else [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]
    for folder in below or [top]:
        (folder / "cpuset.cpus").write_text(str(cpu))


def put_first(path: str) -> None:
    """Give a cgroup the maximum CPU weight, so that it has the CPU before its siblings."""
    if unified():
        (_folder(_ROOT, path) / "cpu.weight").write_text("10000")
    else:
        _file("cpu.shares", path).write_text("262144")


def procs_files(path: str) -> list[Path]:
    """Return the files that take the id of a process to enter the cgroup."""
    return [_folder(hierarchy, path) / "cgroup.procs" for hierarchy in hierarchies()]


def cpu_seconds(path: str) -> float:
    """Return the CPU time that all processes of the cgroup have used so far."""
    if unified():
        statistics = (_folder(_ROOT, path) / "cpu.stat").read_text().split()
        return int(statistics[statistics.index("usage_usec") + 1]) / 1e6
    return int(_file("cpuacct.usage", path).read_text()) / 1e9


def millicores(path: str) -> int | None:
    """Return the CPU limit of the cgroup in millicores; None means no limit."""
    if unified():
        quota, period = (_folder(_ROOT, path) / "cpu.max").read_text().split()
    else:
        quota = _file("cpu.cfs_quota_us", path).read_text().strip()
        period = _file("cpu.cfs_period_us", path).read_text()
    return None if quota in {"max", "-1"} else int(quota) * 1000 // int(period)


def weight(path: str) -> int:
    """Return the CPU weight of the cgroup: 1 to 10000 on v2, 2 to 262144 on v1."""
    file = _folder(_ROOT, path) / "cpu.weight" if unified() else _file("cpu.shares", path)
    return int(file.read_text())


def members(path: str) -> set[int]:
    """Return the ids of the processes in the cgroup and below it, in any hierarchy."""
    return set(_members(path))


def kill_members(path: str) -> None:
    """Kill every process in the cgroup and below it, and wait until none is left."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while pids := members(path):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise OSError(f"processes in cgroup {path} do not end: {sorted(pids)}")
        time.sleep(0.02)  # check again: they may have forked


def remove_cgroup(path: str) -> None:
    """Kill the processes of the cgroup, and remove it and all cgroups below; it may be missing."""
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
    """Remove one empty cgroup; it is busy for a moment after its last process."""
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
    """Return the v1 control file `name`, in the hierarchy that has it."""
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
                continue  # removed meanwhile


def _limit(path: str, millicores: int) -> None:
    quota = millicores * _PERIOD_MICROSECONDS // 1000
    if unified():
        (_folder(_ROOT, path) / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
        return
    _file("cpu.cfs_period_us", path).write_text(str(_PERIOD_MICROSECONDS))
    _file("cpu.cfs_quota_us", path).write_text(str(quota))


def _inherit_cpuset(path: str) -> None:
    """Give a new v1 cpuset the CPUs and memory of its parent; it starts with none."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = _file(name, path)
        file.write_text((file.parent.parent / name).read_text())


def _delegate(path: str) -> None:
    """Make the v2 controllers available in the cgroup and below it, where they exist."""
    available = (_ROOT / "cgroup.controllers").read_text().split()
    for parent in (_ROOT, _folder(_ROOT, path)):
        for controller in available:
            try:
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                continue  # kubelet will report if it needs a missing controller
