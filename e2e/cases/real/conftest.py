"""One cluster of two real nodes, with kfext installed from its manifests, for all cases here."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.install import create_namespace, install_kfext, kubectl
from e2e.harness.standing import named_or_running
from e2e.harness.wait import until
from e2e.testbed import metrics_server
from e2e.testbed.cluster import Testbed
from e2e.testbed.preflight import Unavailable
from e2e.testbed.realnodes import Node, nodes

_GONE_SECONDS = 180.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cases/real" in str(item.path):
            item.add_marker(pytest.mark.real_nodes)


@pytest.fixture(scope="package")
def bed() -> Iterator[Testbed]:
    with named_or_running(f"cases-real-{os.getpid()}", real_nodes=2) as running:
        install_kfext(running)
        yield running


@pytest.fixture(scope="module")
def metrics_api(bed: Testbed) -> Iterator[None]:
    """metrics-server runs in the cluster; its first build takes minutes."""
    try:
        bed.binary(metrics_server.NAME)
    except Unavailable as missing:
        pytest.skip(str(missing))
    metrics_server.start(bed)
    yield
    metrics_server.stop(bed)


@pytest.fixture
def plain(bed: Testbed, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a namespace that kfext does not manage."""
    yield from _namespace(bed, "plain", request, managed=False)


@pytest.fixture
def managed(bed: Testbed, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a managed namespace."""
    yield from _namespace(bed, "managed", request, managed=True)


def _namespace(
    bed: Testbed, prefix: str, request: pytest.FixtureRequest, *, managed: bool
) -> Iterator[str]:
    name = f"{prefix}-{abs(hash(request.node.nodeid)) % 10**8}"
    create_namespace(bed, name, managed=managed)
    yield name
    kubectl(bed, "delete", "namespace", name, "--wait=false")
    # The next case needs free nodes; other objects of the namespace may be deleted later.
    pods = f"/api/v1/namespaces/{name}/pods"
    until(lambda: not bed.api.get(pods)["items"], what="its pods are gone", seconds=_GONE_SECONDS)


@pytest.fixture
def members(bed: Testbed) -> tuple[Node, Node]:
    """The two nodes."""
    first, second = nodes(bed)
    return first, second


@pytest.fixture
def two_nodes(members: tuple[Node, Node]) -> tuple[str, str]:
    """The names of the two nodes."""
    return members[0].name, members[1].name


@pytest.fixture
def folder(bed: Testbed, managed: str) -> Iterator[Path]:
    """The folder for the checkpoints of a case's jobs; every node sees it."""
    path = bed.folder / "checkpoints" / managed
    path.mkdir(parents=True)
    yield path
    kubectl(bed, "delete", "persistentvolume", managed, "--ignore-not-found", "--wait=false")
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def claim(bed: Testbed, managed: str, folder: Path) -> str:
    """The name of a claim with a volume in that folder; the volume has no node affinity."""
    size = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": managed},
        "spec": {
            **size,
            "storageClassName": "",
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": managed, "name": "checkpoints"},
        },
    }
    wanted = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "checkpoints", "namespace": managed},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": managed,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    for body in (volume, wanted):
        kubectl(bed, "apply", "-f", "-", given=json.dumps(body))
    until(lambda: _phase(bed, managed) == "Bound", what="the claim is bound", seconds=60)
    return "checkpoints"


def _phase(bed: Testbed, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/checkpoints"
    return str(bed.api.get(path).get("status", {}).get("phase", ""))
