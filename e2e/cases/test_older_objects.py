"""GitOps and backup tools write older objects back; the result depends on their permissions."""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from e2e.harness.jobs import held, job, marks_of, suspended
from e2e.harness.kube import Answer, Object
from e2e.harness.pods import uids
from e2e.harness.space import Space
from e2e.harness.tenant import Tenant, protected
from e2e.harness.wait import until
from kfext import names

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
REFUSAL = "only kfext may add or change"
TYPES = {"PyTorchJob": {"Master": 1, "Worker": 1}, "TFJob": {"PS": 1, "Worker": 1}}


@pytest.fixture
def tool(space: Space, tmp_path: Path) -> Tenant:
    """A tool with all permissions in one namespace."""
    return protected(space, tmp_path)


@pytest.fixture
def cluster_admin(tool: Tenant) -> Iterator[Tenant]:
    """A tool with all permissions in the whole cluster, as most tools are installed."""
    binding = tool.bind("ClusterRole", "cluster-admin")
    yield tool
    tool.space.kube.delete(binding)


def backup_while_queued(space: Space, kind: str) -> Object:
    """Place a job; return it as it was while it was queued: held, and suspended by kfext."""
    space.nodes(1, cpu="32", memory="64Gi", gpu="1")
    space.submit(job("mine", TYPES[kind], kind=kind, each=GPU))
    space.phase("mine", "Queued", kind)
    backup = space.job("mine", kind)
    assert held(backup)
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.phase("mine", "Placed", kind)
    return backup


def backup_of_namesake(space: Space, kind: str) -> Object:
    """Place a job; return a backup, with a plan, of a deleted job with the same name."""
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    manifest = job("mine", TYPES[kind], kind=kind, each=GPU)
    space.submit(manifest)
    space.phase("mine", "Placed", kind)
    backup = space.job("mine", kind)
    assert names.PLAN in backup["metadata"]["annotations"]
    space.kube.delete(space.path(f"{kind.lower()}s", "mine"))
    space.until(lambda: not space.pods("mine", ending=True), "its pods are gone")
    space.submit(manifest)
    uid = space.job("mine", kind)["metadata"]["uid"]
    space.until(lambda: (space.plan("mine", kind) or {}).get("uid") == uid, "it has a plan")
    space.phase("mine", "Placed", kind)
    return backup


BACKUPS = {"from the queue": backup_while_queued, "from a deleted namesake": backup_of_namesake}


def write_back(tool: Tenant, backup: Object) -> Answer:
    """Write an older object over the job, as a restore does; repeat the write after a conflict."""
    path = tool.space.path(f"{backup['kind'].lower()}s", "mine")

    def written() -> Answer | None:
        current = tool.space.job("mine", backup["kind"])["metadata"]
        identity = {key: current[key] for key in ("uid", "resourceVersion")}
        body = {**backup, "metadata": backup["metadata"] | identity}
        answer = tool.kube.ask("PUT", path, body)
        return None if answer.status == HTTPStatus.CONFLICT else answer

    return until(written, what="the older object is written or refused")


@pytest.mark.parametrize("make", BACKUPS.values(), ids=BACKUPS)
def test_a_tool_of_one_namespace_cannot_write_older_marks_over_a_job(
    tool: Tenant, make: Callable[[Space, str], Object]
) -> None:
    space = tool.space
    backup = make(space, "PyTorchJob")
    before, pods = marks_of(space.job("mine")), uids(space, "mine")
    answer = write_back(tool, backup)
    assert (answer.status, REFUSAL in answer.message) == (403, True), answer.message
    assert (marks_of(space.job("mine")), uids(space, "mine")) == (before, pods)


@pytest.mark.parametrize("kind", TYPES)
def test_a_job_that_a_cluster_admin_restores_as_queued_is_stopped_and_placed_again(
    cluster_admin: Tenant, kind: str
) -> None:
    space = cluster_admin.space
    backup = backup_while_queued(space, kind)
    pods = uids(space, "mine")
    space.until(lambda: write_back(cluster_admin, backup).ok, "the tool has its permissions")
    space.until(lambda: len(uids(space, "mine").items() - pods.items()) == 2, "it has new pods")
    space.bound("mine", 2)
    space.phase("mine", "Placed", kind)
    assert not suspended(space.job("mine", kind))
    assert space.starts() == 2


def test_the_plan_of_a_namesake_that_a_tool_restores_moves_no_pod(cluster_admin: Tenant) -> None:
    space = cluster_admin.space
    backup = backup_of_namesake(space, "PyTorchJob")
    pods = uids(space, "mine")
    space.until(lambda: write_back(cluster_admin, backup).ok, "the tool has its permissions")
    space.submit(job("after", TYPES["TFJob"], kind="TFJob", each=GPU))
    space.phase("after", "Placed", "TFJob")
    assert uids(space, "mine") == pods
