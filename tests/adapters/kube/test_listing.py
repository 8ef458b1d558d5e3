"""Collections page by page: a page that is too large is asked for again with fewer objects."""

import json

import pytest

from e2e.bench.worst_objects import Object
from kfext.errors import AnswerTooLarge
from kfext.kube import listing, paths
from kfext.kube.client import Client
from kfext.kube.listing import objects, uids

from .faulty_server import FaultyServer, item, page


def padded(name: str, size: int) -> Object:
    return {**item(name, 1), "spec": "x" * size}


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_BYTES", 10_000)


async def test_a_page_that_is_too_large_is_asked_for_with_fewer_objects(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.extend(
        [
            page(item("a", 1), version=1, more="after a"),
            page(*(padded(str(at), 6000) for at in range(4)), version=1),
            page(padded("b", 6000), version=1, more="after b"),
            page(item("c", 1), version=1),
        ]
    )
    found = [one["metadata"]["name"] async for one in objects(faulty_client, paths.jobs("tfjobs"))]
    assert found == ["a", "b", "c"]
    asked = [(one["limit"], one.get("continue", "")) for one in faulty.read_queries]
    assert asked == [("500", ""), ("500", "after a"), ("125", "after a"), ("125", "after b")]


async def test_one_object_that_is_too_large_is_an_error(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.extend([page(padded("a", 20_000), version=1)] * 6)
    with pytest.raises(AnswerTooLarge):
        _ = [one async for one in objects(faulty_client, paths.jobs("tfjobs"))]
    assert [one["limit"] for one in faulty.read_queries] == ["500", "125", "31", "7", "1"]


async def test_the_client_goes_on_after_an_answer_that_was_too_large(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.extend([page(padded("a", 20_000), version=1), json.dumps({"a": 1}).encode()])
    with pytest.raises(AnswerTooLarge):
        await faulty_client.page(paths.nodes(), {}, most=100)
    assert await faulty_client.get(paths.nodes("a")) == {"a": 1}


async def test_uids_are_listed_without_the_objects(client: Client, namespace: str) -> None:
    path = paths.resource_path("configmaps", namespace=namespace)
    made = [
        await client.create(path, {"metadata": {"name": name}, "data": {"k": "v" * 5000}})
        for name in ("a", "b", "c")
    ]
    assert {one["metadata"]["uid"] for one in made} <= await uids(client, path)
