"""Objects as deep as the API server accepts, which any user can create."""

import asyncio
import json
import sys
from collections.abc import Iterator

import msgspec
import pytest

from kfext.kube import paths
from kfext.kube.client import API_SERVER_DEPTH, Client, accept_deep_json
from kfext.kube.connection import Request
from kfext.kube.informer import Informer

from .conftest import until

_OUTER_LEVELS = 20
"""The levels of JSON around the managedFields of an object in a list, with a margin."""


@pytest.fixture
def as_deep_as_the_api_server() -> Iterator[None]:
    before = sys.getrecursionlimit()
    accept_deep_json()
    yield
    sys.setrecursionlimit(before)


def deep(name: str, *, levels: int = API_SERVER_DEPTH - _OUTER_LEVELS) -> bytes:
    """Return a ConfigMap with this many levels of managedFields."""
    fields = '{"f:a":' * levels + "{}" + "}" * levels
    entry = {"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    entry |= {"time": "2026-01-01T00:00:00Z", "fieldsV1": "LEVELS"}
    metadata = {"name": name, "managedFields": [entry]}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return json.dumps(body).replace('"LEVELS"', fields).encode()


@pytest.fixture
async def deep_collection(client: Client, namespace: str) -> str:
    """Create an object of the largest depth; return the path of its collection."""
    path = paths.config_maps(namespace)
    await client.send(Request(verb="create", method="POST", path=path, body=deep("one")))
    return path


@pytest.mark.usefixtures("as_deep_as_the_api_server")
async def test_a_deep_object_is_read_and_listed(client: Client, deep_collection: str) -> None:
    content = await client.get(f"{deep_collection}/one")
    assert content["metadata"]["managedFields"]
    uid = content["metadata"]["uid"]
    assert uid in await client.uids(deep_collection)
    listed = [body["metadata"]["uid"] async for body in client.objects(deep_collection)]
    assert uid in listed
    patched = await client.merge_patch(f"{deep_collection}/one", {"data": {"a": "b"}})
    assert patched["data"] == {"a": "b"}


@pytest.mark.usefixtures("as_deep_as_the_api_server")
async def test_an_informer_follows_a_deep_object(
    client: Client, namespace: str, deep_collection: str
) -> None:
    informer = Informer(
        client,
        deep_collection,
        decode=lambda raw: str(msgspec.json.decode(raw)["metadata"]["name"]),
    )
    running = asyncio.create_task(informer.run())
    try:
        await until(lambda: informer.store.by_name("one", namespace=namespace), what="it is listed")
        request = Request(verb="create", method="POST", path=deep_collection, body=deep("two"))
        await client.send(request)
        await until(
            lambda: informer.store.by_name("two", namespace=namespace), what="it is followed"
        )
        assert (informer.metrics.failures, informer.metrics.undecodable) == (0, 0)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_informer_with_the_default_recursion_limit_tries_again(
    client: Client, deep_collection: str
) -> None:
    informer = Informer(client, deep_collection, decode=bytes.decode)
    running = asyncio.create_task(informer.run())
    try:
        await until(lambda: informer.metrics.failures > 1, what="it has tried again")
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
