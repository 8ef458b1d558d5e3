"""What real nodes get of the machine, and what is installed and shared for them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.testbed import cgroups
from e2e.testbed.mounts import mount_points
from e2e.testbed.preflight import Unavailable
from e2e.testbed.realnodes import containerd, cpu_budget, memory_budget
from e2e.testbed.realnodes.containerd import fill_from_template
from e2e.testbed.realnodes.node import burst

GIB = 2**30
HELD = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"


@pytest.mark.parametrize(
    ("cores", "nodes", "want"),
    [
        (2, 1, 1400),
        (2, 2, 700),
        (2, 3, 450),
        (2, 4, 350),
        (1, 2, 200),
        (4, 2, 1700),
        (16, 2, 7200),
        (64, 4, 14400),
    ],
)
def test_cpu_budget(cores: int, nodes: int, want: int) -> None:
    assert cpu_budget(cores, nodes) == want


@pytest.mark.parametrize("cores", [1, 2, 4, 8, 64])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_half_a_core_is_always_left_for_the_control_plane(cores: int, nodes: int) -> None:
    assert cpu_budget(cores, nodes) * nodes <= cores * 1000 - 500


def test_too_many_nodes_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="20 real nodes are too many for 2 cores: 70m for each"):
        cpu_budget(2, 20)


@pytest.mark.parametrize(
    ("machine", "nodes", "want"),
    [(24 * GIB, 2, 3 * GIB), (24 * GIB, 4, 3 * GIB), (8 * GIB, 2, 2 * GIB), (8 * GIB, 4, GIB)],
)
def test_memory_budget(machine: int, nodes: int, want: int) -> None:
    assert memory_budget(machine, nodes) == want


def test_too_little_memory_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"4 real nodes are too many for 4\.5 GiB"):
        memory_budget(int(4.5 * GIB), 4)


def test_mounts_are_undone_deepest_first_newest_first_and_only_those_below() -> None:
    mountinfo = "\n".join(
        f"{number} 1 0:1 / {point} rw - tmpfs tmpfs rw"
        for number, point in enumerate(
            ["/", "/state/x", "/state/x/pods/a\\040b", "/state/x/pods", "/state/xy", "/state/x"]
        )
    )
    want = ["/state/x/pods/a b", "/state/x/pods", "/state/x", "/state/x"]
    assert mount_points(mountinfo, Path("/state/x")) == want


def test_cgroup_hierarchies_of_v1_with_an_idle_v2_beside() -> None:
    mounts = "\n".join(
        [
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0",
            "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0",
            "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0",
            "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0",
        ]
    )
    want = [Path("/sys/fs/cgroup") / name for name in ("cpu", "memory", "unified")]
    assert cgroups.hierarchies(mounts) == want


@pytest.mark.parametrize(
    ("rate", "want"), [("100mbit", 128 * 1024), ("1gbit", 500_000), ("10gbit", 5_000_000)]
)
def test_the_burst_of_a_shaped_link_grows_with_its_rate(rate: str, want: int) -> None:
    assert burst(rate) == want


def test_a_rate_without_a_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="'1000' is no rate"):
        burst("1000")


@pytest.mark.parametrize("path", ["", "/"])
def test_the_root_cgroup_is_never_touched(path: str) -> None:
    with pytest.raises(ValueError, match="not the testbed's"):
        cgroups.remove_cgroup(path)


def test_a_node_gets_its_own_databases_and_shares_what_nobody_changes(tmp_path: Path) -> None:
    template, node = tmp_path / "template", tmp_path / "node"
    snapshots = "io.containerd.snapshotter.v1.overlayfs/snapshots"
    (template / snapshots / "1/fs").mkdir(parents=True)
    (template / snapshots / "1/fs/file").write_text("image")
    (template / "meta").mkdir()
    (template / "meta/meta.db").write_text("database")

    fill_from_template(template, node)
    (node / "meta/meta.db").write_text("changed")
    (node / snapshots / "2").mkdir()

    assert (node / snapshots / "1/fs/file").read_text() == "image"
    assert (template / "meta/meta.db").read_text() == "database"
    assert [path.name for path in (template / snapshots).iterdir()] == ["1"]


def test_a_template_made_from_a_template_does_not_depend_on_its_links(tmp_path: Path) -> None:
    snapshots = "io.containerd.snapshotter.v1.overlayfs/snapshots"
    (tmp_path / "a" / snapshots / "1").mkdir(parents=True)
    fill_from_template(tmp_path / "a", tmp_path / "b")
    fill_from_template(tmp_path / "b", tmp_path / "c")
    link = tmp_path / "c" / snapshots / "1"
    assert link.readlink() == tmp_path / "a" / snapshots / "1"


def test_only_packages_of_missing_programs_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"containerd", "ctr", "socat"}
    monkeypatch.setattr(
        shutil, "which", lambda name: None if name in missing else f"/usr/bin/{name}"
    )
    monkeypatch.setattr(containerd, "cni_folder", lambda: Path("/opt/cni/bin"))
    assert containerd.missing_packages() == ["containerd", "socat"]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The errors that apt-get ends with, one after the other; an empty error is success."""
    left: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        error = left.pop(0)
        return subprocess.CompletedProcess(command, 100 if error else 0, "", error)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return left


def test_the_lock_of_another_is_waited_for(answers: list[str]) -> None:
    answers += [HELD, HELD, ""]
    containerd._apt_get("update")
    assert answers == []


def test_a_lock_is_not_waited_for_without_end(answers: list[str]) -> None:
    answers += [HELD] * 1000
    with pytest.raises(Unavailable, match="held by process 7"):
        containerd._apt_get("update")
    assert answers


def test_any_other_error_is_shown_at_once(answers: list[str]) -> None:
    answers += ["E: Unable to locate package containerd", ""]
    with pytest.raises(Unavailable, match="Unable to locate"):
        containerd._apt_get("install", "containerd")
    assert answers == [""]
