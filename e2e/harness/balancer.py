"""A TCP balancer before the webhook's replicas: what a Service is in a cluster with kube-proxy."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

_CONNECT_SECONDS = 1.0


@dataclass
class Balancer:
    """Passes each new connection to the next port of `endpoints()`, which may change at any time.

    Like a Service it knows nothing of what passes, and ends no connection unless told to. A port
    where nobody listens any more is passed over.
    """

    port: int
    endpoints: Callable[[], Sequence[int]]
    taken: dict[int, int] = field(default_factory=dict)
    """How many connections each port was given."""
    _turn: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def start(self) -> None:
        threading.Thread(target=self._loop.run_forever, daemon=True, name="balancer").start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def cut(self) -> None:
        """End all connections, as an API server does that had no review for long."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    async def _cut(self) -> None:
        for writer in self._open:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await self._connect()
        if onward is not None:
            self._open.add(writer)
            copies = (_copy(reader, onward[1]), _copy(onward[0], writer))
            await asyncio.gather(*copies)
            self._open.remove(writer)
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        ports = list(self.endpoints())
        self._turn += 1
        for step in range(len(ports)):
            port = ports[(self._turn + step) % len(ports)]
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    found = await asyncio.open_connection("127.0.0.1", port)
                self.taken[port] = self.taken.get(port, 0) + 1
                return found
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until either side ends."""
    with suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
