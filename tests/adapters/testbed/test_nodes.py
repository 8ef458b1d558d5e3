"""The CPU budget, mounts, cgroups and containerd folders of real nodes."""

from pathlib import Path

import pytest

from e2e.testbed import cgroups
from e2e.testbed.mounts import mount_points
from e2e.testbed.realnodes import cpu_budget
from e2e.testbed.realnodes.containerd import fill_from_template


@pytest.mark.parametrize("cores", [1, 2, 4, 8, 64])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_half_a_core_is_left_for_the_control_plane(cores: int, nodes: int) -> None:
    assert cpu_budget(cores, nodes) * nodes <= cores * 1000 - 500


def test_only_mounts_below_a_folder_are_undone_the_deepest_and_newest_first() -> None:
    mountinfo = "\n".join(
        f"{number} 1 0:1 / {point} rw - tmpfs tmpfs rw"
        for number, point in enumerate(
            ["/", "/state/x", "/state/x/pods/a\\040b", "/state/x/pods", "/state/xy", "/state/x"]
        )
    )
    want = ["/state/x/pods/a b", "/state/x/pods", "/state/x", "/state/x"]
    assert mount_points(mountinfo, Path("/state/x")) == want


@pytest.mark.parametrize("path", ["", "/"])
def test_the_root_cgroup_is_never_touched(path: str) -> None:
    with pytest.raises(ValueError, match="not the testbed's"):
        cgroups.remove_cgroup(path)


def test_a_node_has_its_own_databases_and_shares_unchanged_files(tmp_path: Path) -> None:
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


def test_a_template_built_from_a_template_does_not_depend_on_its_links(tmp_path: Path) -> None:
    snapshots = "io.containerd.snapshotter.v1.overlayfs/snapshots"
    (tmp_path / "a" / snapshots / "1").mkdir(parents=True)
    fill_from_template(tmp_path / "a", tmp_path / "b")
    fill_from_template(tmp_path / "b", tmp_path / "c")
    link = tmp_path / "c" / snapshots / "1"
    assert link.readlink() == tmp_path / "a" / snapshots / "1"
