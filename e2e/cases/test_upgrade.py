"""Another version comes: jobs of every phase go on."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.harness.installed import protection, roles
from e2e.harness.jobs import workers
from e2e.harness.kfext_process import COMMAND, Kfext
from e2e.harness.refusing import admit_pods, refuse_pods
from e2e.harness.space import Space
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
FOREIGN = {"schedulingGates": [{"name": "example.com/gate"}]}
FIRST_VERSION = "62f80ce4a88b29c4dc78c8cfe6f3635bb088d3c1"
"""The first that placed gangs: the oldest from which anybody can upgrade."""


def release(space: Space, *arguments: str) -> None:
    """Give jobs back by hand."""
    subprocess.run(
        [COMMAND, "release", *arguments, f"--kubeconfig={space.kfext.testbed.kubeconfig}"],
        check=True,
        capture_output=True,
    )


def ungate_foreign(space: Space, name: str) -> None:
    for pod in space.pods(name):
        gates = [gate["name"] for gate in pod["spec"]["schedulingGates"]]
        path = f"/spec/schedulingGates/{gates.index('example.com/gate')}"
        remove = [{"op": "remove", "path": path}]
        space.kube.patch(space.path("pods", pod["metadata"]["name"]), remove, kind="json")


# --- another version ------------------------------------------------------------------------------


@pytest.fixture
def first_version(tmp_path: Path) -> Path:
    """The code and manifests of the first version, from this repository's history."""
    packed = tmp_path / "first.tar"
    with packed.open("wb") as output:
        done = subprocess.run(
            ["git", "archive", FIRST_VERSION, "kfext", "manifests"],
            cwd=REPOSITORY,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        pytest.skip(f"the first version is not in this copy of the history: {done.stderr.strip()}")
    with tarfile.open(packed) as content:
        content.extractall(tmp_path / "first", filter="data")
    return tmp_path / "first"


class EveryPhase:
    """A job in each phase, in a namespace of its own where the phase needs one."""

    def __init__(self, new_space: Callable[..., Space], testbed: Testbed) -> None:
        self._testbed = testbed
        self.space, self.starved, self.unbound, self.crowded = (new_space() for _ in range(4))
        self.space.nodes(2, cpu="32", memory="64Gi", gpu="4")
        self.crowded.nodes(1, cpu="32", memory="64Gi", gpu="2")

    def reach(self) -> None:
        """Submit the jobs and wait until each is where it shall be."""
        space = self.space
        space.submit(workers("placed", 2, each=GPU))
        space.phase("placed", "Placed")
        space.submit(workers("gated", 2, each=GPU, pod=FOREIGN))
        space.phase("gated", "Gated")
        space.submit(workers("suspended", 2, each=GPU, policy={"suspend": True}))
        space.phase("suspended", "Suspended")
        space.submit(workers("queued", 8, each=GPU))
        space.phase("queued", "Queued")
        self.crowded.submit(workers("released", 4, each=GPU))
        self.crowded.phase("released", "Queued")
        release(self.crowded, "released", "-n", self.crowded.name)
        self.crowded.phase("released", "Released")
        refuse_pods(self.starved)
        self.starved.submit(workers("planned", 2, each=GPU))
        self.starved.phase("planned", "Planned")
        self.unbound.policy(placement={"bindTimeout": "10m"})
        self._testbed.stop_process("kube-scheduler")
        self.unbound.submit(workers("binding", 2, each=GPU))
        self.unbound.phase("binding", "Binding")

    def go_on(self) -> None:
        """Take away what holds each of them back, and see each arrive."""
        space = self.space
        self._testbed.restart_process("kube-scheduler")
        self.unbound.bound("binding", 2)
        admit_pods(self.starved, "planned")
        self.starved.bound("planned", 2)
        ungate_foreign(space, "gated")
        space.bound("gated", 2)
        space.nodes(2, cpu="32", memory="64Gi", gpu="8")
        space.bound("queued", 8)
        space.patch_job("suspended", {"spec": {"runPolicy": {"suspend": False}}})
        space.bound("suspended", 2)
        for name in ("placed", "gated", "queued", "suspended"):
            space.phase(name, "Placed")
        self.unbound.phase("binding", "Placed")
        self.starved.phase("planned", "Placed")
        # What is released stays so: the pods that found no room wait for kube-scheduler alone.
        self.crowded.nodes(1, cpu="32", memory="64Gi", gpu="2")
        self.crowded.bound("released", 4)
        self.crowded.phase("released", "Released")


DIRECTIONS = {"the first version gives way to this one": True, "and this one to the first": False}


@pytest.mark.long
@pytest.mark.parametrize("up", DIRECTIONS.values(), ids=DIRECTIONS.keys())
def test_jobs_of_every_phase_go_on_under_another_version(
    new_space: Callable[..., Space], kfext: Kfext, other: Path, up: bool
) -> None:
    old, new = (other, REPOSITORY) if up else (REPOSITORY, other)
    run_as(kfext, old)
    every = EveryPhase(new_space, kfext.testbed)
    every.reach()
    uids = {pod["metadata"]["uid"] for pod in every.space.pods("placed")}

    # As a Deployment does it: the new one knows the cluster before the old one ends.
    install_rights(kfext, new)
    kfext.environment = running(new)
    standby = kfext.start_standby()
    kfext.stop_controller()
    kfext.wait_leading(standby)
    kfext.webhook.stop()
    kfext.start_webhook()
    kfext.wait_hooks()

    every.go_on()
    assert {pod["metadata"]["uid"] for pod in every.space.pods("placed")} == uids
    for space in (every.space, every.starved, every.unbound):
        pinned = space.pins()
        assert pinned == dict.fromkeys((p["metadata"]["name"] for p in space.pods()), 1)
    assert every.crowded.pins() == {}
    # Started under a plan by kfext, each once; the person's and the released one never.
    assert every.space.starts() == 3
    assert every.starved.starts() == every.unbound.starts() == 1
    # And what comes after.
    every.space.submit(workers("after", 2, each=GPU))
    every.space.phase("after", "Placed")


@pytest.fixture
def other(kfext: Kfext, first_version: Path) -> Iterator[Path]:
    """The folder of the first version; what it changes is as it was afterwards."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import kfext; print(kfext.__file__)"],
        env={**os.environ, **running(first_version)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(first_version)), "it would be the code under test"
    yield first_version
    run_as(kfext, REPOSITORY)


def running(version: Path) -> dict[str, str]:
    """Return the environment in which processes run the code in a folder."""
    return {"PYTHONPATH": str(version)} if version != REPOSITORY else {}


def install_rights(kfext: Kfext, version: Path) -> None:
    """Give each account the rights of a version, as docs/install.md says.

    The first version has no policy for its marks, and would not be allowed to write them under it.
    """
    bed = kfext.testbed
    guards = list(protection())
    if version != REPOSITORY:
        for guard in guards:
            bed.api.delete(bed.api.path(guard))
    for manifest in roles(version):
        bed.api.apply(manifest)
    if version == REPOSITORY:
        for guard in guards:
            bed.api.apply(guard)


def run_as(kfext: Kfext, version: Path) -> None:
    """Have all processes run the code in a folder, with its rights."""
    kfext.end_processes()
    install_rights(kfext, version)
    kfext.environment = running(version)
    kfext.ensure()
    kfext.wait_hooks()
