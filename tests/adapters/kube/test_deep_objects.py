"""Objects of the largest depth that the true API server accepts, which any user can create."""

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

_AROUND = 20
"""Levels of a list around the managedFields of its objects, with a margin."""


@pytest.fixture
def as_deep_as_the_api_server() -> Iterator[None]:
    before = sys.getrecursionlimit()
    accept_deep_json()
    yield
    sys.setrecursionlimit(before)


def deep(name: str, *, levels: int = API_SERVER_DEPTH - _AROUND) -> bytes:
    """Return a ConfigMap with this many levels of managedFields."""
    fields = '{"f:a":' * levels + "{}" + "}" * levels
    entry = {"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    entry |= {"time": "2026-01-01T00:00:00Z", "fieldsV1": "LEVELS"}
    metadata = {"name": name, "managedFields": [entry]}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return json.dumps(made).replace('"LEVELS"', fields).encode()


@pytest.fixture
async def held(client: Client, namespace: str) -> str:
    """The path of a collection with an object of the largest depth."""
    path = paths.config_maps(namespace)
    await client.send(Request(verb="create", method="POST", path=path, body=deep("one")))
    return path


@pytest.mark.usefixtures("as_deep_as_the_api_server")
async def test_a_deep_object_is_read_and_listed(client: Client, held: str) -> None:
    content = await client.get(f"{held}/one")
    assert content["metadata"]["managedFields"]
    uid = content["metadata"]["uid"]
    assert uid in await client.uids(held)
    listed = [body["metadata"]["uid"] async for body in client.objects(held)]
    assert uid in listed
    patched = await client.merge_patch(f"{held}/one", {"data": {"a": "b"}})
    assert patched["data"] == {"a": "b"}


@pytest.mark.usefixtures("as_deep_as_the_api_server")
async def test_an_informer_follows_a_deep_object(client: Client, namespace: str, held: str) -> None:
    followed = Informer(
        client, held, decode=lambda raw: str(msgspec.json.decode(raw)["metadata"]["name"])
    )
    running = asyncio.create_task(followed.run())
    try:
        await until(lambda: followed.store.by_name("one", namespace=namespace), what="it is listed")
        request = Request(verb="create", method="POST", path=held, body=deep("two"))
        await client.send(request)
        await until(
            lambda: followed.store.by_name("two", namespace=namespace), what="it is followed"
        )
        assert (followed.metrics.failures, followed.metrics.undecodable) == (0, 0)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_informer_without_the_limit_continues_and_tries_again(
    client: Client, held: str
) -> None:
    followed = Informer(client, held, decode=bytes.decode)
    running = asyncio.create_task(followed.run())
    try:
        await until(lambda: followed.metrics.failures > 1, what="it has tried again")
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
