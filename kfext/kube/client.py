"""The client of the API server, with a method for each kind of request.

Objects are plain dicts. When a request fails, every method raises an ApiError of `kfext.errors` and
nothing else. The `Connection` decides which requests to repeat, and when.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec
import orjson

from kfext.errors import AnswerTooLarge, Unavailable
from kfext.kube.connection import Connection, Observe, Request, find_access

T = TypeVar("T")

Object = dict[str, Any]
"""A JSON object of the API."""

FIELD_MANAGER = "kfext"
PAGE = 500
"""The most objects of a page."""
PAGE_BYTES = 16 * 2**20
"""The most bytes of a page; 500 ordinary pods need a quarter of them."""
_SHRINK = 4
"""The next request for a page that was too large asks for a quarter of the objects."""
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

API_SERVER_DEPTH = 10_000
"""The deepest nesting of JSON: the limit of Go's encoding/json, which the API server uses."""
_FRAMES = 2_000
"""The stack frames for everything else."""


def accept_deep_json() -> None:
    """Raise the recursion limit so that this process can decode all JSON of the API server.

    A user who may create an object decides on its `managedFields`, which are JSON of any depth.
    Python's recursion limit applies to decoders, and its default of 1,000 would make such an
    object, and each list with it, unreadable.
    """
    sys.setrecursionlimit(API_SERVER_DEPTH + _FRAMES)


class Metadata(msgspec.Struct, rename="camel"):
    """The part of an object's metadata that identifies it and its version."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


class _Identity(msgspec.Struct):
    """The metadata of an object of any kind."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class _ListMetadata(msgspec.Struct, rename="camel"):
    """The version of a list, and the token of its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list; Go writes null for an empty page."""

    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


_identity = msgspec.json.Decoder(_Identity).decode
_page = msgspec.json.Decoder(Page).decode


def metadata_of(raw: bytes | msgspec.Raw) -> Metadata:
    """Return the metadata of an object. Raises msgspec.DecodeError, RecursionError."""
    return _identity(raw).metadata


class Client(Connection):
    """A client of one API server."""

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        observe: Observe | None = None,
    ) -> Self:
        """Return a client for the cluster of this pod or of a kubeconfig. Raises NoAccess."""
        access = await asyncio.to_thread(find_access, kubeconfig=kubeconfig, context=context)
        return cls(access, observe=observe)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- reading ----------------------------------------------------------------------------------

    async def get(self, path: str, **query: str) -> Object:
        """Return one object."""
        return _object(await self.send(Request("get", "GET", path, query)))

    async def read(self, path: str, *, most: int | None = None, **query: str) -> bytes:
        """Return the raw bytes of a response, such as a list or the log of a pod.

        Raises AnswerTooLarge for more than `most` bytes.
        """
        verb = "list" if query.keys() & {"limit", "labelSelector"} else "get"
        return await self.send(Request(verb, "GET", path, query), most=most)

    async def pages(
        self, path: str, query: Mapping[str, str], *, metadata_only: bool = False
    ) -> AsyncGenerator[Page, None]:
        """Yield the pages of a collection; use each before the next, so that only one is in memory.

        An object can have 1.5 MiB, and a user may create hundreds. So a page is bounded in bytes: a
        larger page is requested again with fewer objects. Raises AnswerTooLarge for an object that
        is too large by itself.
        """
        accept = _METADATA if metadata_only else "application/json"
        limit, continue_ = PAGE, ""
        while True:
            where = {"continue": continue_} if continue_ else {}
            parameters = {**query, "limit": str(limit), **where}
            request = Request("list", "GET", path, parameters, accept=accept)
            try:
                page = _decoded(await self.send(request, most=PAGE_BYTES), _page)
            except AnswerTooLarge:
                if limit == 1:
                    raise
                limit = max(limit // _SHRINK, 1)
                continue
            yield page
            continue_ = page.metadata.continue_
            if not continue_:
                return

    async def objects(self, path: str, **query: str) -> AsyncIterator[Object]:
        """Yield the objects of a collection, each decoded only when it is reached."""
        async for page in self.pages(path, query):
            for raw in page.items or ():
                yield _object(raw)

    async def list_all(self, path: str, **query: str) -> list[Object]:
        """Return all objects of a collection."""
        return [item async for item in self.objects(path, **query)]

    async def first(self, path: str, *, count: int, **query: str) -> list[Object]:
        """Return the first objects of a collection. Raises AnswerTooLarge."""
        body = await self.read(path, most=PAGE_BYTES, limit=str(count), **query)
        return [_object(raw) for raw in _decoded(body, _page).items or ()]

    async def uids(self, path: str) -> set[str]:
        """Return the uids of a collection; only the metadata of its objects is sent."""
        return {
            metadata_of(raw).uid
            async for page in self.pages(path, {}, metadata_only=True)
            for raw in page.items or ()
        }

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

        The first chunk is empty and comes when the server has accepted the watch: a collection
        without changes since the API server started may send nothing else, not even bookmarks. The
        stream ends after `server_seconds`, or when nothing arrives for `silence_seconds`. Raises
        Unavailable if the connection breaks.
        """
        follow = {"watch": "true", "allowWatchBookmarks": "true"}
        since = {"resourceVersion": resource_version, "timeoutSeconds": str(server_seconds)}
        request = Request("watch", "GET", path, {**query, **follow, **since})
        return self.stream(request, silence_seconds=silence_seconds)

    # --- writing ----------------------------------------------------------------------------------

    async def create(self, path: str, body: Object) -> Object:
        """Create an object in the collection `path`. Raises Conflict if it exists."""
        query = {"fieldManager": FIELD_MANAGER}
        return _object(await self.send(Request("create", "POST", path, query, orjson.dumps(body))))

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> Object:
        """Apply JSON-patch operations, all or none. Raises Invalid if a `test` among them fails."""
        return await self.json_patch_as(path, operations, decode=msgspec.json.decode)

    async def json_patch_as(
        self, path: str, operations: Sequence[Mapping[str, Any]], *, decode: Callable[[bytes], T]
    ) -> T:
        """Apply JSON-patch operations like `json_patch`; return the object as decoded by `decode`.

        `decode` need not read all fields.
        """
        return _decoded(await self.send(_patch("json-patch+json", path, list(operations))), decode)

    async def merge_patch(self, path: str, patch: Object) -> Object:
        """Merge `patch` (RFC 7386) into an object. Raises Conflict for a stale resourceVersion."""
        return _object(await self.send(_patch("merge-patch+json", path, patch)))

    async def strategic_patch_as(
        self, path: str, patch: Object, *, decode: Callable[[bytes], T]
    ) -> T:
        """Merge `patch` into an object, and lists by their keys; return like `json_patch_as`.

        Raises Conflict for a stale resourceVersion.
        """
        return _decoded(await self.send(_patch("strategic-merge-patch+json", path, patch)), decode)

    async def apply(self, path: str, body: Object) -> Object:
        """Create the object, or take over the fields in `body`, by server-side apply."""
        request = _patch("apply-patch+yaml", path, body, verb="apply", force="true")
        return _object(await self.send(request))

    async def delete(
        self, path: str, *, uid: str = "", resource_version: str = "", grace: int | None = None
    ) -> None:
        """Delete an object. Raises Conflict if it no longer has the given uid or resource version.

        `grace` is in seconds; the default is the object's own grace period.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        conditions = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {key: value for key, value in conditions.items() if value}:
            options["preconditions"] = preconditions
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        await self.send(Request("delete", "DELETE", path, body=orjson.dumps(options)))


def _patch(format_: str, path: str, body: object, *, verb: str = "patch", **query: str) -> Request:
    parameters = {"fieldManager": FIELD_MANAGER, **query}
    return Request(verb, "PATCH", path, parameters, orjson.dumps(body), f"application/{format_}")


def _object(body: bytes | msgspec.Raw) -> Object:
    return cast(Object, _decoded(body, msgspec.json.decode))


def _decoded(body: bytes | msgspec.Raw, decode: Callable[[Any], T]) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        message = f"the answer is not JSON: {error}"
        raise Unavailable(status=0, reason="Garbled", message=message) from error
