"""The client of the API server: what it can be asked."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec

from kfext.errors import Unavailable
from kfext.kube import request as build
from kfext.kube.access import find_access
from kfext.kube.connection import Connection, Observe, ignore
from kfext.kube.request import Object

T = TypeVar("T")

_PAGE = 500


class Client(Connection):
    """An API server. Objects are plain dicts.

    When a request fails, every method raises an ApiError of `kfext.errors` and nothing else. What
    is sent again, and when, is a matter of the `Connection`.
    """

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        connections: int = 64,
        observe: Observe = ignore,
    ) -> Self:
        """Return a client for the cluster that we run in or for a kubeconfig. Raises NoAccess."""
        access = await asyncio.to_thread(find_access, kubeconfig=kubeconfig, context=context)
        return cls(access, connections=connections, observe=observe)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def get(self, path: str, **query: str) -> Object:
        """Return one object."""
        return _object(await self.send(build.read(path, query)))

    async def read(self, path: str, **query: str) -> bytes:
        """Return the raw bytes of an answer: a page of a list, or the log of a pod."""
        verb = "list" if "limit" in query else "get"
        return await self.send(build.read(path, query, verb=verb))

    async def page(
        self, path: str, query: Mapping[str, str], *, most: int, metadata_only: bool = False
    ) -> bytes:
        """Return a page of a collection. Raises AnswerTooLarge for more than `most` bytes."""
        return await self.send(build.page(path, query, metadata_only=metadata_only), most=most)

    async def list_all(self, path: str, **query: str) -> list[Object]:
        """Return all objects of a collection, page by page."""
        items: list[Object] = []
        query["limit"] = str(_PAGE)
        while True:
            page = _object(await self.read(path, **query))
            items += page.get("items") or []
            query["continue"] = (page.get("metadata") or {}).get("continue") or ""
            if not query["continue"]:
                return items

    async def create(self, path: str, body: Object) -> Object:
        """Create an object in the collection `path`. Raises Conflict if it exists."""
        return _object(await self.send(build.create(path, body)))

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> Object:
        """Apply JSON-patch operations, all or none. Raises Invalid if a `test` among them fails."""
        return await self.json_patch_as(path, operations, decode=msgspec.json.decode)

    async def json_patch_as(
        self, path: str, operations: Sequence[Mapping[str, Any]], *, decode: Callable[[bytes], T]
    ) -> T:
        """Apply JSON-patch operations like `json_patch`; return what `decode` makes of the answer.

        `decode` need not read all of it.
        """
        return _decoded(await self.send(build.json_patch(path, operations)), decode)

    async def merge_patch(self, path: str, patch: Object) -> Object:
        """Merge `patch` into an object. Raises Conflict if it has a stale resourceVersion."""
        return _object(await self.send(build.merge_patch(path, patch)))

    async def strategic_patch_as(
        self, path: str, patch: Object, *, decode: Callable[[bytes], T]
    ) -> T:
        """Merge `patch` into an object, lists of it by their keys; return as `json_patch_as` does.

        Raises Conflict if it has a stale resourceVersion.
        """
        return _decoded(await self.send(build.strategic_patch(path, patch)), decode)

    async def apply(self, path: str, body: Object) -> Object:
        """Create the object, or take over the fields in `body`, by server-side apply."""
        return _object(await self.send(build.apply(path, body)))

    async def delete(
        self, path: str, *, uid: str = "", resource_version: str = "", grace: int | None = None
    ) -> None:
        """Delete an object. Raises Conflict if it no longer has the given uid or resource version.

        `grace` is in seconds; None means the object's own.
        """
        await self.send(build.delete(path, uid=uid, resource_version=resource_version, grace=grace))

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        server_seconds: int,
        silence_seconds: float,
        **query: str,
    ) -> AsyncGenerator[bytes, None]:
        """Yield chunks of the stream of changes after `resource_version`, as they arrive.

        The first chunk is empty and comes when the server has accepted the watch, because for a
        collection that has not changed since the API server started nothing else may come, not even
        bookmarks. The stream ends after `server_seconds`, or when nothing arrives for
        `silence_seconds`. Raises Unavailable if the connection breaks.
        """
        request = build.watch(
            path, query, resource_version=resource_version, server_seconds=server_seconds
        )
        return self.stream(request, silence_seconds=silence_seconds)


def _object(body: bytes) -> Object:
    return cast(Object, _decoded(body, msgspec.json.decode))


def _decoded(body: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        message = f"the answer is not JSON: {error}"
        raise Unavailable(status=0, reason="Garbled", message=message) from error
