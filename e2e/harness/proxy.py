"""A reverse proxy between a controller and the API server: it records requests and injects faults.

kfext has no failpoints, so the effect of a crash or an outage is observed from outside. The proxy
speaks plain HTTP to the controller, and forwards requests with the controller's client certificate,
so that RBAC applies as in a real installation. It reads along in each open watch, for tests that
wait until the controller has received their change.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from e2e.harness.faults import Exchange, Fault, Match

_FOLLOWED = {"namespaces", "networkpolicies", "nodes", "resourcequotas", "trainingpolicies"}
"""The collections with versions that `Stream` records: small, but decisions depend on them."""
T = TypeVar("T")
_HOP_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
_BODY_LIMIT = 16 * 2**20
_ANSWER_SECONDS = 10.0  # an API server that a test has stopped may never answer


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct):
    type: str
    object: _Object


_EVENT = msgspec.json.Decoder(_Event)
"""It decodes only these fields: at thousands of events a second, decoding more would delay every
request of kfext, including renewals of the Lease."""


@dataclass(eq=False)
class Stream:
    """An open watch of the controller.

    For a collection in `_FOLLOWED`, `version` is the newest version that the controller received,
    at first the version of its list, and `gone` has the uids of deleted objects.
    """

    exchange: Exchange
    open: bool = True
    version: int = field(init=False)
    gone: set[str] = field(default_factory=set)
    _rest: bytes = b""

    def __post_init__(self) -> None:
        self.plural = self.exchange.path.rsplit("/", 1)[-1]
        self.version = int(self.exchange.query.get("resourceVersion") or 0)

    def read(self, chunk: bytes) -> None:
        """Record the events of a forwarded chunk."""
        if self.plural not in _FOLLOWED:
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            event = _EVENT.decode(line)
            metadata = event.object.metadata
            # The resource versions of a collection are increasing numbers.
            self.version = max(self.version, int(metadata.resource_version or 0))
            if event.type == "DELETED":
                self.gone.add(metadata.uid)


@dataclass
class Proxy:
    """The proxy; it has an event loop in a thread of its own, and tests call its public methods.

    `log`: every answered request except watches, in the order of the answers. `kill`: kills the
    controller; faults may call it.
    """

    upstream: str
    tls: ssl.SSLContext
    port: int
    kill: Callable[[], None] = lambda: None
    log: list[Exchange] = field(default_factory=list)
    _faults: list[Fault] = field(default_factory=list)
    _streams: dict[Stream, asyncio.Task[None]] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _running: set[asyncio.Task[Any]] = field(default_factory=set)
    _forwarding: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def server(self) -> str:
        """The URL for the controller's kubeconfig."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        # Requests that a test delays wait in threads of this pool.
        self._loop.set_default_executor(ThreadPoolExecutor(64))
        threading.Thread(target=self._loop.run_forever, daemon=True, name="proxy").start()
        self._call(self._serve())

    def stop(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def arm(self, fault: Fault) -> Fault:
        """Add a fault; the first fault that matches a request handles it."""
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def drop_watches(self, match: Match = lambda _: True) -> int:
        """Cut each open watch that matches, as a restarted API server does; return their number."""

        async def cut() -> int:
            tasks = [task for stream, task in self._streams.items() if match(stream.exchange)]
            for task in tasks:
                task.cancel()
            return len(tasks)

        return self._call(cut())

    def streams(self, plural: str) -> list[Stream]:
        """Return the open watches of a collection."""
        return [stream for stream in list(self._streams) if stream.plural == plural]

    def writes(self, match: Match = lambda _: True) -> list[Exchange]:
        """Return the recorded writes that the API server carried out."""
        self._call(self._wait_forwarded())  # the effect of a write may show before its answer
        return [
            exchange
            for exchange in list(self.log)
            if exchange.is_write and exchange.status < 300 and match(exchange)
        ]

    # --- on the loop ------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _serve(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self.tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=_BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A watch must not outlive its reader.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def _end(self) -> None:
        for task in [*self._streams.values(), *self._running]:
            task.cancel()
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        exchange = Exchange(request.method, request.path, dict(request.query), body)
        if exchange.is_watch:
            return await self._stream(request, exchange)
        # Shielded: a forwarded request is completed and recorded even if the controller is dead.
        work = asyncio.ensure_future(self._exchange(request, exchange))
        self._running.add(work)
        work.add_done_callback(self._running.discard)
        status, answer, kind = await asyncio.shield(work)
        if not status:
            if request.transport is not None:
                request.transport.abort()
            status = 502
        return web.Response(status=status, body=answer, headers={"Content-Type": kind})

    async def _exchange(self, request: web.Request, exchange: Exchange) -> tuple[int, bytes, str]:
        """Return the answer to the controller: status (0: hang up), body and content type."""
        for fault in list(self._faults):
            if fault.match(exchange):
                return await fault.apply(
                    exchange, lambda: self._forward(request, exchange), self.kill
                )
        return await self._forward(request, exchange)

    async def _wait_forwarded(self) -> None:
        if self._forwarding:
            await asyncio.wait(set(self._forwarding), timeout=_ANSWER_SECONDS)

    async def _forward(self, request: web.Request, exchange: Exchange) -> tuple[int, bytes, str]:
        forwarding = asyncio.ensure_future(self._fetch(request, exchange))
        self._forwarding.add(forwarding)
        forwarding.add_done_callback(self._forwarding.discard)
        return await forwarding

    async def _fetch(self, request: web.Request, exchange: Exchange) -> tuple[int, bytes, str]:
        try:
            async with self._send(request, exchange) as response:
                answer = await response.read()
        except aiohttp.ClientConnectionError:
            return 0, b"", ""  # the API server does not answer
        exchange.status = response.status
        self.log.append(exchange)
        return response.status, answer, response.headers.get("Content-Type", "application/json")

    def _send(self, request: web.Request, exchange: Exchange) -> Any:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_HEADERS}
        headers["Accept-Encoding"] = "identity"  # bodies are forwarded unchanged
        return self._session.request(
            request.method,
            URL(self.upstream + request.raw_path, encoded=True),
            headers=headers,
            data=exchange.body or None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )

    async def _stream(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        for fault in list(self._faults):
            if fault.match(exchange):
                status, answer, kind = await fault.apply(exchange, _nothing, self.kill)
                if answer:
                    return web.Response(status=status, body=answer, content_type=kind)
        async with self._send(request, exchange) as upstream:
            response = web.StreamResponse(status=upstream.status)
            response.content_type = "application/json"
            await response.prepare(request)
            stream = Stream(exchange)
            copying = asyncio.ensure_future(_copy(upstream, response, stream))
            self._streams[stream] = copying
            try:
                await copying
            except asyncio.CancelledError:
                copying.cancel()
                if request.transport is not None:
                    request.transport.abort()
            finally:
                stream.open = False
                del self._streams[stream]
        return response


async def _copy(
    upstream: aiohttp.ClientResponse, response: web.StreamResponse, stream: Stream
) -> None:
    async for chunk in upstream.content.iter_any():
        await response.write(chunk)
        if upstream.ok:  # otherwise this is an error, not a watch
            stream.read(chunk)
    await response.write_eof()


async def _nothing() -> tuple[int, bytes, str]:
    return 0, b"", "application/json"
