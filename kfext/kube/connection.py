"""One connection pool to one API server: sends what `request` builds, raises `kfext.errors`."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from kfext.errors import (
    AnswerTooLarge,
    ApiError,
    NotLeading,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kfext.kube.access import Access
from kfext.kube.paths import resource_of
from kfext.kube.request import Request, error_of

Observe = Callable[[str, str, int, float], None]
"""A function called after each request with verb, resource, HTTP status (0: no answer), seconds."""

_REQUEST_SECONDS = 15.0
_CONNECT_SECONDS = 5.0
_KEEPALIVE_SECONDS = 60.0  # kube-apiserver closes idle connections after 90 s; close them first
_THROTTLED_TRIES = 4
_LONGEST_THROTTLE_SECONDS = 10.0


def ignore(verb: str, resource: str, status: int, seconds: float) -> None:
    """Ignore a request."""


def _always() -> bool:
    """Allow every write."""
    return True


class Connection:
    """Sends requests to an API server.

    A request answered with 429 was not processed, so it is sent again after Retry-After, at most
    three times. A refused token is read again once. Nothing else is retried, because only the
    caller knows whether that is safe.
    """

    def __init__(self, access: Access, *, connections: int = 64, observe: Observe = ignore):
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

    def write_only_while(self, may_write: Callable[[], bool]) -> None:
        """Send writes from now on only while `may_write()` is true; others raise NotLeading."""
        self._may_write = may_write

    async def close(self) -> None:
        """Close all connections; running requests fail with Unavailable."""
        await self._session.close()

    async def send(self, request: Request, *, most: int | None = None) -> bytes:
        """Return the answer to a request. Raises AnswerTooLarge for more than `most` bytes."""
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

    async def stream(
        self, request: Request, *, silence_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield chunks of the answer to a request as they arrive, the first of them empty.

        Ends when nothing arrives for `silence_seconds`. Raises Unavailable for a broken connection.
        """
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
