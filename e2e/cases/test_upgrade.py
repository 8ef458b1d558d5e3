"""kfext goes, and another version comes: jobs of every phase go on, and nothing of ours blocks."""

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
from e2e.harness.kube import Object
from e2e.harness.look import gated, held, pinned_to, suspended
from e2e.harness.refusing import admit_pods, refuse_pods
from e2e.harness.space import Space
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from kfext import names

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


# --- no kfext any more ----------------------------------------------------------------------------


def remove_section() -> list[str]:
    """Return the commands of the section "Remove" of docs/install.md, in order.

    But for the one that switches namespaces off: it would reach those of other cases.
    """
    text = (REPOSITORY / "docs" / "install.md").read_text()
    section = text.split("\n## Remove\n", 1)[1].split("\n## ", 1)[0]
    blocks = section.split("```sh\n")[1:]
    lines = [line for block in blocks for line in block.split("```", 1)[0].splitlines()]
    return [line for line in lines if line.strip() and not line.startswith(("#", "kubectl label"))]


class Shell:
    """A person's shell in a copy of the repository: kubectl, and our plugin for it."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "kubectl").symlink_to(testbed.binary("kubectl"))
        (folder / "bin" / "kubectl-kfext").symlink_to(COMMAND.with_name("kubectl-kfext"))
        for name in ("manifests", "crds"):
            (folder / name).symlink_to(REPOSITORY / name)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(testbed.kubeconfig), "PATH": path}

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout


@pytest.fixture
def shell(kfext: Kfext, tmp_path: Path) -> Iterator[Shell]:
    """A shell; whatever was removed in it is installed again afterwards."""
    yield Shell(kfext.testbed, tmp_path)
    kfext.end_processes()
    kfext.forget_hooks()
    kfext.apply_manifests()
    kfext.ensure()


def held_jobs(space: Space, starved: Space) -> None:
    """Submit a job that waits in the queue, one behind our gate, one whose pods are refused."""
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("placed", 2, each=GPU))
    space.phase("placed", "Placed")
    space.submit(workers("gated", 2, each=GPU, pod=FOREIGN))
    space.phase("gated", "Gated")
    space.submit(workers("queued", 4, each=GPU))
    space.phase("queued", "Queued")
    refuse_pods(starved)
    starved.submit(workers("planned", 2, each=GPU))
    starved.phase("planned", "Planned")


def check_freed(space: Space, starved: Space) -> None:
    """Every job is plain Kubernetes' now, and a new one too."""
    assert not suspended(space.job("queued"))
    admit_pods(starved, "planned")
    starved.bound("planned", 2)
    ungate_foreign(space, "gated")
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.bound("gated", 2)
    space.bound("queued", 4)
    space.submit(workers("new", 1))
    space.bound("new", 1)
    pods = [*space.pods(), *starved.pods()]
    assert not any(gated(pod) for pod in pods)
    fresh = [pod for pod in pods if not pod["metadata"]["name"].startswith(("placed", "planned"))]
    assert not any(pinned_to(pod) for pod in fresh)
    for name in ("placed", "gated", "queued", "new"):
        assert "finalizers" not in space.job(name)["metadata"]


def left_behind(kfext: Kfext) -> list[str]:
    """Return what of kfext is still in the cluster, namespaces' contents apart."""
    kinds = {
        "/api/v1": ["namespaces"],
        "/apis/rbac.authorization.k8s.io/v1": ["clusterroles", "clusterrolebindings"],
        "/apis/apiextensions.k8s.io/v1": ["customresourcedefinitions"],
        "/apis/admissionregistration.k8s.io/v1": [
            *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        ],
    }
    found: list[Object] = []
    for root, plurals in kinds.items():
        for plural in plurals:
            found += kfext.kube.items(f"{root}/{plural}")
    present = [thing["metadata"]["name"] for thing in found]
    own = ("kfext-system", "kfext-controller", "kfext-webhook", "kfext-view", "kfext-edit")
    return [
        name
        for name in present
        if name in {*own, "kfext", "kfext-policy-edit", names.MARKS_POLICY}
        or name.endswith(".kfext.dev")
    ]


@pytest.mark.long
def test_what_the_manual_says_about_removal_frees_every_job_and_leaves_nothing_that_blocks(
    new_space: Callable[..., Space], kfext: Kfext, shell: Shell
) -> None:
    space, starved = new_space(), new_space()
    held_jobs(space, starved)
    said = ""
    for command in remove_section():
        said += shell.run(command)
        if "delete -k" in command:  # that ends the pods of the Deployments
            kfext.end_processes()
    assert "queued: unsuspended and marked as released" in said
    assert "gated: marked as released" in said
    assert left_behind(kfext) == []
    check_freed(space, starved)


@pytest.mark.long
def test_a_removal_in_the_wrong_order_is_mended_by_releasing_afterwards(
    new_space: Callable[..., Space], kfext: Kfext, shell: Shell
) -> None:
    space, starved = new_space(), new_space()
    held_jobs(space, starved)
    kfext.end_processes()
    (delete,) = (command for command in remove_section() if "delete -k" in command)
    shell.run(delete)
    assert left_behind(kfext) == []
    assert held(space.job("queued"))
    assert suspended(space.job("queued"))
    shell.run("kubectl kfext release --all --all-namespaces")
    check_freed(space, starved)
