"""An API server with faults on demand; a true API server has them only by accident."""

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass
class Refuse:
    """Answer with an HTTP error."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = "refused"


class HangUp:
    """Abort the connection."""


class FallSilent:
    """Keep the connection open, but send nothing more."""


Step = bytes | Refuse | HangUp | FallSilent | asyncio.Event
"""A step of a watch: bytes are sent, and an Event is awaited, which the test sets."""


def item(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}


def line(type_: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"


def page(*items: dict[str, Any], version: int, continue_: str = "") -> bytes:
    metadata = {"resourceVersion": str(version), "continue": continue_}
    return json.dumps({"metadata": metadata, "items": list(items) or None}).encode()


class FaultyServer:
    """An API server that answers from two scripts, `reads` and `watches`, an entry per request.

    A watch is a list of steps; after the last step it ends properly. After the last entry of its
    script, each watch stays silent. `watch_queries` has the queries of the watches, `read_queries`
    the queries of the other requests, and `tokens` the Authorization headers.
    """

    def __init__(self) -> None:
        self.reads: deque[bytes | Refuse] = deque()
        self.watches: deque[list[Step]] = deque()
        self.watch_queries: list[dict[str, str]] = []
        self.read_queries: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(app)
        await self._server.start_server(shutdown_timeout=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        if request.query.get("watch") == "true":
            self.watch_queries.append(dict(request.query))
            silent: list[Step] = [FallSilent()]
            steps = self.watches.popleft() if self.watches else silent
            return await self._watch(request, steps)
        self.read_queries.append(dict(request.query))
        answer = self.reads.popleft()
        if isinstance(answer, Refuse):
            return web.Response(status=answer.status, text=answer.body, headers=answer.headers)
        return web.Response(body=answer, content_type="application/json")

    async def _watch(self, request: web.Request, steps: list[Step]) -> web.StreamResponse:
        if steps and isinstance(steps[0], Refuse):
            return web.Response(status=steps[0].status, text=steps[0].body)
        response = web.StreamResponse()
        await response.prepare(request)
        for step in steps:
            if isinstance(step, bytes):
                await response.write(step)
            elif isinstance(step, HangUp):
                assert request.transport is not None
                await asyncio.sleep(0.05)  # let the client read what was written first
                request.transport.abort()
                return response
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                await self._closing.wait()
        await response.write_eof()
        return response
