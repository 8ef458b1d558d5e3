"""Clients of a true API server and of a FaultyServer."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from e2e.testbed.cluster import Testbed
from kfext.errors import Conflict
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.connection import Access, Token
from kfext.names import NAMESPACE

from .faulty_server import FaultyServer


async def until(condition: Callable[[], object], *, what: str) -> None:
    """Wait until a condition holds; the limit only ends a test that would hang."""
    try:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"never happened: {what}")


@pytest.fixture
async def client(testbed: Testbed) -> AsyncIterator[Client]:
    async with await Client.connect(testbed.kubeconfig) as connected:
        yield connected


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    name = f"test-{uuid.uuid4().hex[:12]}"
    await client.create(paths.namespaces(), {"metadata": {"name": name}})
    yield name
    await client.delete(paths.namespaces(name))


@pytest.fixture
async def home(client: Client) -> str:
    """Create kfext's own namespace, which has the Lease and the CA; return its name."""
    with suppress(Conflict):
        await client.create(paths.namespaces(), {"metadata": {"name": NAMESPACE}})
    return NAMESPACE


@pytest.fixture
async def faulty() -> AsyncIterator[FaultyServer]:
    async with FaultyServer() as server:
        yield server


@pytest.fixture
async def faulty_client(faulty: FaultyServer) -> AsyncIterator[Client]:
    access = Access(server=faulty.url, tls=None, token=Token(lambda: "Bearer old"))
    async with Client(access) as connected:
        yield connected
