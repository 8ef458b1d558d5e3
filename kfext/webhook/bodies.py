"""Read the bodies of reviews, bounded in bytes and in time, each and all together.

The port is not authenticated, so whoever reaches it must not take the memory. A review that is
turned away fails open: the API server admits its object unchanged.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

MOST_BYTES = 32 * 2**20
"""Of all bodies that are being read or decided on."""
LONGEST_SECONDS = 2.0
"""For one body to arrive: the API server waits no longer for the answer."""


class Bodies:
    """The bodies under way; `held` is how many bytes they have."""

    def __init__(
        self, *, longest: int, most: int = MOST_BYTES, seconds: float = LONGEST_SECONDS
    ) -> None:
        self.held = 0
        self._longest = longest
        self._most = most
        self._seconds = seconds

    @asynccontextmanager
    async def of(self, http: web.Request) -> AsyncIterator[bytes]:
        """Yield a body, which counts until the block ends.

        Raises HTTPBadRequest, HTTPRequestTimeout, HTTPRequestEntityTooLarge, HTTPServiceUnavailable
        or, for a compressed body, HTTPUnsupportedMediaType.
        """
        if http.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise web.HTTPUnsupportedMediaType(text="a review must not be compressed")
        body = bytearray()
        try:
            await self._read(http, body)
            yield bytes(body)
        finally:
            self.held -= len(body)

    async def _read(self, http: web.Request, body: bytearray) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._read_all(http, body)
        except TimeoutError as error:
            text = f"the body did not arrive within {self._seconds:g} s"
            raise web.HTTPRequestTimeout(text=text) from error
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(text=f"the body is broken: {error}") from error

    async def _read_all(self, http: web.Request, body: bytearray) -> None:
        while chunk := await http.content.readany():
            body += chunk
            self.held += len(chunk)
            if len(body) > self._longest:
                text = f"a review may have at most {self._longest} bytes"
                raise web.HTTPRequestEntityTooLarge(self._longest, len(body), text=text)
            if self.held > self._most:
                raise web.HTTPServiceUnavailable(text="too many reviews at once")
