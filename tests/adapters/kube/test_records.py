"""The leader's ConfigMaps on a true API server: their size, and who may read and write them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from e2e.harness.install import read
from e2e.testbed.cluster import Testbed
from kfext.core.ledger.ledger import Ledger
from kfext.core.queue.capacity_record import MAX_BYTES, capacity_record
from kfext.errors import Forbidden
from kfext.kube.client import Client
from kfext.kube.records import CAPACITY, USAGE, Record, read_record, write_record
from kfext.names import CLUSTER_VIEW
from tests.unit.core.queue.test_capacity_record import large

As = Callable[[str], AbstractAsyncContextManager[Client]]
_GROUP = "rbac.authorization.k8s.io"


@pytest.fixture
def account(testbed: Testbed, home: str, tmp_path: Path) -> As:
    """Return a function that connects as a user who has only a named Role of the manifests."""

    @asynccontextmanager
    async def with_role(name: str) -> AsyncIterator[Client]:
        for manifest in (*read("base/controller/rbac.yaml"), *read("base/users/roles.yaml")):
            if (manifest["kind"], manifest["metadata"]["name"]) == ("Role", name):
                testbed.api.apply(manifest)
        user = f"has-{name}"
        testbed.api.apply(
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": user, "namespace": home},
                "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": name},
                "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
            }
        )
        config = testbed.pki.kubeconfig(tmp_path / user, server=testbed.server, user=user)
        async with await Client.connect(config) as client:
            async with asyncio.timeout(60):
                while await refused(read_record(client, CAPACITY)):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.05)  # until the API server knows the binding
            yield client

    return with_role


async def refused(request: Awaitable[object]) -> bool:
    """Return whether the API server forbids a request."""
    try:
        await request
    except Forbidden:
        return True
    return False


async def test_the_longest_capacity_record_is_written_and_read_only_with_the_named_permission(
    account: As,
) -> None:
    written = capacity_record(Ledger(large(9000, length=60)), None)
    assert len(written) > MAX_BYTES - 1000
    async with account("kfext-controller") as leader, account(CLUSTER_VIEW) as person:
        assert await read_record(leader, CAPACITY) == ""
        await write_record(leader, CAPACITY, "{}")
        await write_record(leader, CAPACITY, written)
        assert await read_record(person, CAPACITY) == written
        await write_record(leader, USAGE, "{}")
        assert await refused(read_record(person, USAGE))
        assert await refused(write_record(person, CAPACITY, "{}"))
        assert await refused(write_record(leader, Record("kfext-other", "text"), "{}"))
