"""List a collection page by page, and never hold more than one page of it.

An object can have 1.5 MiB, and whoever may create one may create hundreds, so a page is bounded by
its bytes: one that is longer is asked for again with fewer objects.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import msgspec

from kfext.errors import AnswerTooLarge
from kfext.kube import stream
from kfext.kube.client import Client
from kfext.kube.request import Object

PAGE = 500
"""Objects of a page at most."""
PAGE_BYTES = 16 * 2**20
"""Bytes of a page at most: 500 ordinary pods have a quarter of it."""
_FEWER = 4


async def pages(
    client: Client,
    path: str,
    *,
    selectors: Mapping[str, str] | None = None,
    metadata_only: bool = False,
) -> AsyncGenerator[stream.Page, None]:
    """Yield the pages of a collection; use up each before the next. Raises ApiError."""
    limit, query = PAGE, dict(selectors or {})
    while True:
        query["limit"] = str(limit)
        try:
            body = await client.page(path, query, most=PAGE_BYTES, metadata_only=metadata_only)
        except AnswerTooLarge:
            if limit == 1:
                raise
            limit = max(limit // _FEWER, 1)
            continue
        page = stream.page(body)
        del body  # the page refers to it as long as it must
        yield page
        query["continue"] = page.metadata.continue_
        if not query["continue"]:
            return


async def objects(client: Client, path: str) -> AsyncIterator[Object]:
    """Yield the objects of a collection, each of which is decoded when it is its turn."""
    async for page in pages(client, path):
        for raw in page.items or ():
            yield msgspec.json.decode(raw)


async def first(
    client: Client, path: str, *, count: int, selectors: Mapping[str, str]
) -> list[Object]:
    """Return the first objects of a collection. Raises AnswerTooLarge, ApiError."""
    body = await client.page(path, {**selectors, "limit": str(count)}, most=PAGE_BYTES)
    return [msgspec.json.decode(raw) for raw in stream.page(body).items or ()]


async def uids(client: Client, path: str) -> set[str]:
    """Return the uids of a collection, of whose objects only the metadata is sent."""
    return {
        stream.identity(raw).metadata.uid
        async for page in pages(client, path, metadata_only=True)
        for raw in page.items or ()
    }
