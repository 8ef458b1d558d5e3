"""`kubectl kfext ui` on a true API server: what each user sees, and when it changes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness import wait
from e2e.harness.install import read
from e2e.harness.kube import Kube
from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.cli.cluster import ClusterOptions
from kfext.cli.ui import cluster_source
from kfext.cli.ui_state import Source, State
from kfext.kube import paths
from kfext.kube.client import Client
from tests.adapters import test_crds
from tests.adapters.kube.conftest import until

kinds = test_crds.kinds
TEAMS = ("ui-a", "ui-b", "ui-c", "ui-d")
JOBS = 100
RBAC = "rbac.authorization.k8s.io"
VIEWER, OBSERVER = "ui-viewer", "ui-observer"
RECORD = {
    "capacity": '{"nodes": {"n": {"allocatable": {"cpu": 4000}, "free": {"cpu": 1000}}},'
    ' "reservation": null}'
}


def plan(number: int) -> dict[str, Any]:
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": f"pytorchjob-job-{number}", "namespace": TEAMS[number % len(TEAMS)]},
        "spec": {"job": {**job, "name": f"job-{number}", "uid": f"uid-{number}"}},
    }


def status_path(number: int) -> str:
    return paths.plans(TEAMS[number % len(TEAMS)], f"pytorchjob-job-{number}", "status")


@pytest.fixture(scope="module")
def cluster(kinds: Testbed) -> Iterator[Testbed]:
    """Create 100 TrainingPlans, a node, the capacity record, and two users with roles."""
    api = kinds.api
    for name in (*TEAMS, names.NAMESPACE):
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for manifest in read("base/users/roles.yaml"):
        api.apply(manifest)
    record = {"apiVersion": "v1", "kind": "ConfigMap", "data": RECORD}
    metadata = {"name": names.CAPACITY_RECORD, "namespace": names.NAMESPACE}
    api.apply({**record, "metadata": metadata})
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ui-node"}})
    bind(kinds, VIEWER, "view", namespace=TEAMS[0])
    bind(kinds, OBSERVER, names.CLUSTER_VIEW)
    bind(kinds, OBSERVER, names.CLUSTER_VIEW, namespace=names.NAMESPACE, kind="Role")
    for number in range(JOBS):
        body = plan(number)
        api.create(paths.plans(body["metadata"]["namespace"]), body)
        api.patch(status_path(number), {"status": {"phase": "Placed", "workers": 2}})
    for user, path in ((VIEWER, paths.plans(TEAMS[0])), (OBSERVER, paths.nodes())):
        allowed = partial(_may_get, Kube(kinds, kinds.pki.client(user)), path)
        wait.until(allowed, what=f"the permissions of {user}")
    yield kinds
    for name in TEAMS:
        api.delete(f"/api/v1/namespaces/{name}")
    api.delete("/api/v1/nodes/ui-node")
    # Other tests need the absence of the record.
    api.delete(paths.config_maps(names.NAMESPACE, names.CAPACITY_RECORD))


def _may_get(kube: Kube, path: str) -> bool:
    return kube.ask("GET", path).ok


def bind(
    bed: Testbed, user: str, role: str, *, namespace: str = "", kind: str = "ClusterRole"
) -> None:
    scope = {"namespace": namespace} if namespace else {}
    bed.api.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
            "metadata": {"name": f"{user}-{role}", **scope},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        }
    )


@asynccontextmanager
async def page_of(
    kubeconfig: Path, *, namespace: str | None = None, all_namespaces: bool = False
) -> AsyncIterator[Source]:
    """Yield the source of the page for a kubeconfig, once it has read everything."""
    options = ClusterOptions(namespace, None, kubeconfig)
    async with (
        options.connect() as client,
        cluster_source(client, options, all_namespaces=all_namespaces) as source,
    ):
        await source.ready()
        yield source


def kubeconfig_of(bed: Testbed, tmp_path: Path, user: str) -> Path:
    """Return the kubeconfig of a user with the namespace ui-a."""
    path = bed.pki.kubeconfig(tmp_path / user, server=bed.server, user=user)
    config = yaml.safe_load(path.read_text())
    config["contexts"][0]["context"]["namespace"] = TEAMS[0]
    path.write_text(yaml.safe_dump(config))
    return path


def note_texts(state: State) -> str:
    return "\n".join(result["text"] for result in state["notes"])


async def test_an_administrator_sees_everything(cluster: Testbed) -> None:
    async with page_of(cluster.kubeconfig) as live:
        state = live.state()
        assert len(state["jobs"]) == JOBS
        assert {row["namespace"] for row in state["jobs"].values()} == {*TEAMS}
        assert (state["scope"], state["notes"]) == ("", [])
        assert state["nodes"]["n"]["free"] == 1
        assert "ui-node" in state["nodes"]


async def test_a_user_with_view_in_a_namespace_sees_its_jobs_and_the_missing_permissions(
    cluster: Testbed, tmp_path: Path
) -> None:
    async with page_of(kubeconfig_of(cluster, tmp_path, VIEWER)) as live:
        state = live.state()
        assert len(state["jobs"]) == JOBS // len(TEAMS)
        assert state["scope"] == TEAMS[0]
        notes = note_texts(state)
        assert f"You see namespace {TEAMS[0]} alone" in notes
        for right in ("list nodes", "list sharedgpus", names.CAPACITY_RECORD, names.CLUSTER_VIEW):
            assert right in notes
        assert "does not answer" not in notes


async def test_a_user_with_the_role_of_the_page_sees_everything(
    cluster: Testbed, tmp_path: Path
) -> None:
    async with page_of(kubeconfig_of(cluster, tmp_path, OBSERVER)) as live:
        state = live.state()
        assert (len(state["jobs"]), state["notes"]) == (JOBS, [])
        assert state["nodes"]["n"]["free"] == 1


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"namespace": TEAMS[1]}, f"in namespace {TEAMS[1]}; Role view there has this right"),
        ({"all_namespaces": True}, f"in all namespaces; ClusterRole {names.CLUSTER_VIEW} has"),
    ],
)
async def test_a_user_without_permissions_sees_the_missing_permission(
    cluster: Testbed, tmp_path: Path, options: Any, want: str
) -> None:
    async with page_of(kubeconfig_of(cluster, tmp_path, VIEWER), **options) as live:
        assert live.state()["jobs"] == {}
        assert want in note_texts(live.state())


async def test_a_change_of_the_cluster_appears_on_the_page(cluster: Testbed) -> None:
    async with (
        page_of(cluster.kubeconfig) as live,
        await Client.connect(cluster.kubeconfig) as client,
    ):
        patch = {"status": {"phase": "Queued", "reason": "NoRoom", "ahead": 0}}
        await client.merge_patch(status_path(1), patch)
        await until(lambda: live.state()["jobs"]["uid-1"]["phase"] == "Queued", what="a new phase")
        path = status_path(2).removesuffix("/status")
        await client.delete(path)
        await until(lambda: "uid-2" not in live.state()["jobs"], what="a job that is gone")
        await client.create(path.rpartition("/")[0], plan(2))
        await until(lambda: "uid-2" in live.state()["jobs"], what="its TrainingPlan, created again")
        assert len(live.state()["jobs"]) == JOBS


async def test_without_the_api_server_the_page_shows_its_age(cluster: Testbed) -> None:
    async with page_of(cluster.kubeconfig) as live:
        restart = asyncio.create_task(asyncio.to_thread(cluster.restart_process, "kube-apiserver"))
        await until(lambda: "does not answer" in note_texts(live.state()), what="the note")
        state = live.state()
        assert state["heard"] < state["at"]
        assert len(state["jobs"]) == JOBS  # as before
        await restart
        await until(lambda: not live.state()["notes"], what="an answer")
        state = live.state()
        assert state["heard"] == state["at"]


async def test_an_explanation_quotes_a_refusal_of_the_api_server(
    cluster: Testbed, tmp_path: Path
) -> None:
    async with page_of(kubeconfig_of(cluster, tmp_path, VIEWER)) as live:
        view = next(iter(live.jobs()))
        with pytest.raises(Exception, match=r"pytorchjobs.*forbidden|there is no PyTorchJob"):
            await live.explain(view)
