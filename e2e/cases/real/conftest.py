"""One cluster of two real nodes with kfext installed from its manifests, for all cases here."""

import os
from collections.abc import Iterator

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
    """metrics-server, which takes minutes to build where it was never built."""
    try:
        bed.binary(metrics_server.NAME)
    except Unavailable as missing:
        pytest.skip(str(missing))
    metrics_server.start(bed)
    yield
    metrics_server.stop(bed)


@pytest.fixture
def plain(bed: Testbed, request: pytest.FixtureRequest) -> Iterator[str]:
    yield from _namespace(bed, "plain", request, managed=False)


@pytest.fixture
def managed(bed: Testbed, request: pytest.FixtureRequest) -> Iterator[str]:
    yield from _namespace(bed, "managed", request, managed=True)


def _namespace(
    bed: Testbed, prefix: str, request: pytest.FixtureRequest, *, managed: bool
) -> Iterator[str]:
    name = f"{prefix}-{abs(hash(request.node.nodeid)) % 10**8}"
    create_namespace(bed, name, managed=managed)
    yield name
    kubectl(bed, "delete", "namespace", name, "--wait=false")
    # Then the next case has the nodes for itself; what else was in the namespace may take longer.
    pods = f"/api/v1/namespaces/{name}/pods"
    until(lambda: not bed.api.get(pods)["items"], what="its pods are gone", seconds=_GONE_SECONDS)


@pytest.fixture
def members(bed: Testbed) -> tuple[Node, Node]:
    """Return the two nodes."""
    first, second = nodes(bed)
    return first, second


@pytest.fixture
def homes(members: tuple[Node, Node]) -> tuple[str, str]:
    """Return the names of the two nodes."""
    return members[0].name, members[1].name
