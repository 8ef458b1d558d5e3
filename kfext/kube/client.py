"""The client of the API server: sends what `request` builds and raises `kfext.errors`."""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import aiohttp
import msgspec
import orjson
from yarl import URL

from kfext.errors import (
    AnswerTooLarge,
    ApiError,
    NotLeading,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kfext.kube import request as build
from kfext.kube.access import Access, find_access
from kfext.kube.paths import resource_of
from kfext.kube.request import Object, Request, error_of

T = TypeVar("T")

Observe = Callable[[str, str, int, float], None]
"""A function called after each request with verb, resource, HTTP status (0: no answer), seconds."""

_REQUEST_SECONDS = 15.0
_CONNECT_SECONDS = 5.0
_KEEPALIVE_SECONDS = 60.0  # kube-apiserver closes idle connections after 90 s; close them first
_THROTTLED_TRIES = 4
_LONGEST_THROTTLE_SECONDS = 10.0
_PAGE = 500


def _ignore(verb: str, resource: str, status: int, seconds: float) -> None:
    """Ignore a request."""


def _always() -> bool:
    """Allow every write."""
    return True


class Client:
    """One connection pool to one API server. Objects are plain dicts.

    When a request fails, every method raises an ApiError of `kfext.errors` and nothing else. A
    request answered with 429 was not processed, so it is sent again after Retry-After, at most
    three times. A refused token is read again once. Nothing else is retried, because only the
    caller knows whether that is safe.
    """

    def __init__(self, access: Access, *, connections: int = 64, observe: Observe = _ignore):
        self._access = access
        self._observe = observe
        self._may_write: Callable[[], bool] = _always
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=connections,
                ssl=access.tls if access.tls is not None else True,
                keepalive_timeout=_KEEPALIVE_SECONDS,
            ),
            # Compression costs the API server more than it saves inside a data centre.
            headers={"Accept-Encoding": "identity"},
        )

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        connections: int = 64,
        observe: Observe = _ignore,
    ) -> Self:
        """Return a client for the cluster that we run in or for a kubeconfig. Raises NoAccess."""
        access = await asyncio.to_thread(find_access, kubeconfig=kubeconfig, context=context)
        return cls(access, connections=connections, observe=observe)

    def trust(self) -> ssl.SSLContext | None:
        """Return what verifies other servers of the cluster: see `Access.trust`."""
        return self._access.trust()

    def write_only_while(self, may_write: Callable[[], bool]) -> None:
        """Send writes from now on only while `may_write()` is true; others raise NotLeading."""
        self._may_write = may_write

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; running requests fail with Unavailable."""
        await self._session.close()

    async def get(self, path: str, **query: str) -> Object:
        """Return one object."""
        return _object(await self._send(build.read(path, query)))

    async def read(self, path: str, **query: str) -> bytes:
        """Return the raw bytes of an answer: a page of a list, or the log of a pod."""
        verb = "list" if "limit" in query else "get"
        return await self._send(build.read(path, query, verb=verb))

    async def page(
        self, path: str, query: Mapping[str, str], *, most: int, metadata_only: bool = False
    ) -> bytes:
        """Return a page of a collection. Raises AnswerTooLarge for more than `most` bytes."""
        return await self._send(build.page(path, query, metadata_only=metadata_only), most=most)

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
        return _object(await self._send(build.create(path, body)))

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> Object:
        """Apply JSON-patch operations, all or none. Raises Invalid if a `test` among them fails."""
        return await self.json_patch_as(path, operations, decode=orjson.loads)

    async def json_patch_as(
        self, path: str, operations: Sequence[Mapping[str, Any]], *, decode: Callable[[bytes], T]
    ) -> T:
        """Apply JSON-patch operations like `json_patch`; return what `decode` makes of the answer.

        `decode` need not read all of it.
        """
        return _decoded(await self._send(build.json_patch(path, operations)), decode)

    async def merge_patch(self, path: str, patch: Object) -> Object:
        """Merge `patch` into an object. Raises Conflict if it has a stale resourceVersion."""
        return _object(await self._send(build.merge_patch(path, patch)))

    async def strategic_patch_as(
        self, path: str, patch: Object, *, decode: Callable[[bytes], T]
    ) -> T:
        """Merge `patch` into an object, lists of it by their keys; return as `json_patch_as` does.

        Raises Conflict if it has a stale resourceVersion.
        """
        return _decoded(await self._send(build.strategic_patch(path, patch)), decode)

    async def apply(self, path: str, body: Object) -> Object:
        """Create the object, or take over the fields in `body`, by server-side apply."""
        return _object(await self._send(build.apply(path, body)))

    async def delete(
        self, path: str, *, uid: str = "", resource_version: str = "", grace: int | None = None
    ) -> None:
        """Delete an object. Raises Conflict if it no longer has the given uid or resource version.

        `grace` is in seconds; None means the object's own.
        """
        await self._send(
            build.delete(path, uid=uid, resource_version=resource_version, grace=grace)
        )

    async def watch(
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
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence_seconds
        )
        async with self._exchange(request, limits) as response:
            if response.status >= 400:
                raise await _refusal(response)
            yield b""
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except aiohttp.SocketTimeoutError:
                return  # quiet or dead: a new watch will show which

    async def _send(self, request: Request, *, most: int | None = None) -> bytes:
        limits = aiohttp.ClientTimeout(total=_REQUEST_SECONDS, sock_connect=_CONNECT_SECONDS)
        token_refused = False
        throttled = 0
        while True:
            try:
                async with self._exchange(request, limits) as response:
                    if response.status >= 400:
                        raise await _refusal(response)
                    return await _body(response, most)
            except Unauthorized:
                if token_refused:
                    raise
                token_refused = True
            except TooManyRequests as error:
                throttled += 1
                if throttled == _THROTTLED_TRIES:
                    raise
                await asyncio.sleep(min(error.retry_after, _LONGEST_THROTTLE_SECONDS))

    @asynccontextmanager
    async def _exchange(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield its answer; convert failures and call the observer."""
        status, began = 0, time.monotonic()
        observed = False

        def observe() -> None:
            nonlocal observed
            if not observed:
                observed = True
                seconds = time.monotonic() - began
                self._observe(request.verb, resource_of(request.path), status, seconds)

        try:
            headers = await self._access.token.header() | {"Accept": request.accept}
            if request.body is not None:
                headers["Content-Type"] = request.content_type
            if request.method != "GET" and not self._may_write():
                message = "not sent: another controller may lead by now"
                raise NotLeading(status=0, reason="NotLeading", message=message)
            async with self._session.request(
                request.method,
                URL(self._access.server + request.target, encoded=True),
                data=request.body,
                headers=headers,
                timeout=limits,
                server_hostname=self._access.server_hostname,
                allow_redirects=False,
            ) as response:
                status = response.status
                if status == 401:
                    self._access.token.expire()
                if request.verb == "watch":  # how long a watch lasts means nothing
                    observe()
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            words = str(error) or type(error).__name__
            raise Unavailable(status=0, reason="NoAnswer", message=words) from error
        finally:
            observe()


async def _body(response: aiohttp.ClientResponse, most: int | None) -> bytes:
    if most is None:
        return await response.read()
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > most:
            response.close()  # the rest would have to be read before another request
            message = f"the answer has more than {most} bytes"
            raise AnswerTooLarge(status=response.status, reason="TooLarge", message=message)
        parts.append(part)
    return b"".join(parts)


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    return error_of(
        response.status, await response.read(), retry_after=response.headers.get("Retry-After")
    )


def _object(body: bytes) -> Object:
    return cast(Object, _decoded(body, orjson.loads))


def _decoded(body: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        message = f"the answer is not JSON: {error}"
        raise Unavailable(status=0, reason="Garbled", message=message) from error
