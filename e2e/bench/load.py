"""The load generator of the review benchmark: a process of its own, HTTP/1.1 over TLS, keep-alive.

Open loop (`--rate`): requests are due at even intervals regardless of the server, and latency
counts from the due time, so that a stall of the server counts for all waiting requests.
Closed loop (no rate): each connection sends its next request once the previous one is answered.

On two cores the generator must not dominate the measurement, so requests are built in advance, and
answers are searched, not parsed. Connections are opened before the clock starts. The results are
printed as a JSON object.
"""

import argparse
import asyncio
import gc
import json
import selectors
import ssl
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

_DRAIN_SECONDS = 10.0


class Connection(asyncio.Protocol):
    """A connection; `on_answer(connection, succeeded)` is called once per request."""

    def __init__(self, on_answer: Callable[["Connection", bool], None]) -> None:
        self.due = 0.0
        self._on_answer = on_answer
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def send(self, request: bytes, *, due: float) -> None:
        self.due = due
        if self._transport is None or self._transport.is_closing():
            self._on_answer(self, False)
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self._buffer) < end + 4 + length:
            return
        succeeded = head.startswith(b"http/1.1 200") and self._buffer.find(b'"patch"', end) > 0
        self._buffer.clear()
        self._on_answer(self, succeeded)


class Load:
    """A measurement: sends requests for `seconds`; collects latencies and lateness in seconds."""

    def __init__(self, requests: list[bytes], *, seconds: float) -> None:
        self.latencies: list[float] = []
        self.lateness: list[float] = []
        self.errors = 0
        self._requests = cycle(requests)
        self._seconds = seconds
        self._idle: list[Connection] = []
        self._waiting: list[float] = []
        self._end = 0.0
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def run(
        self, connections: list[Connection], *, rate: float | None
    ) -> dict[str, float | int | list[float]]:
        """Send requests over the connections, and return the results. `rate`: requests a second."""
        began = self._loop.time()
        self._end = began + self._seconds
        self._closed = rate is None
        if rate is None:
            for connection in connections:
                connection.send(next(self._requests), due=began)
            await asyncio.sleep(self._seconds)
            done, seconds = len(self.latencies), self._loop.time() - began
        else:
            self._idle = connections
            for number in range(int(rate * self._seconds)):
                self._loop.call_at(began + number / rate, self._send_due, began + number / rate)
            await asyncio.sleep(self._seconds)
            sent, waited = int(rate * self._seconds), 0.0
            while len(self.latencies) + self.errors < sent and waited < _DRAIN_SECONDS:
                await asyncio.sleep(0.05)
                waited += 0.05
            self.errors += sent - len(self.latencies) - self.errors
            done, seconds = len(self.latencies), self._loop.time() - began
        return {
            "done": done,
            "rate": done / seconds,
            "errors": self.errors,
            "latencies": self.latencies,
            "lateness": self.lateness,
        }

    def on_answer(self, connection: Connection, succeeded: bool) -> None:
        now = self._loop.time()
        if succeeded:
            self.latencies.append(now - connection.due)
        else:
            self.errors += 1
        if self._closed:
            if now < self._end:
                connection.send(next(self._requests), due=now)
        elif self._waiting:
            connection.send(next(self._requests), due=self._waiting.pop(0))
        else:
            self._idle.append(connection)

    def _send_due(self, due: float) -> None:
        self.lateness.append(self._loop.time() - due)
        if self._idle:
            self._idle.pop().send(next(self._requests), due=due)
        else:
            self._waiting.append(due)


async def main(
    *,
    url: str,
    authority: Path,
    bodies: list[bytes],
    connections: int,
    rate: float | None,
    seconds: float,
) -> None:
    target = urlsplit(url)
    host, _, port = target.netloc.rpartition(":")
    head = (
        f"POST {target.path} HTTP/1.1\r\nHost: {target.netloc}\r\n"
        "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    requests = [(head % len(body)).encode() + body for body in bodies]
    load = Load(requests, seconds=seconds)
    loop = asyncio.get_running_loop()
    tls = ssl.create_default_context(cafile=str(authority))
    open_connections = [
        (await loop.create_connection(
            lambda: Connection(load.on_answer), host, int(port), ssl=tls
        ))[1]
        for _ in range(connections)
    ]  # fmt: skip
    gc.disable()
    print(json.dumps(await load.run(open_connections, rate=rate)))


def _lines(file: str) -> list[bytes]:
    return Path(file).read_bytes().splitlines()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--authority", type=Path, required=True)
    parser.add_argument("--bodies", type=_lines, required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--seconds", type=float, required=True)
    # epoll rounds waits up to whole milliseconds; select does not.
    exact = asyncio.SelectorEventLoop(selectors.SelectSelector())
    with asyncio.Runner(loop_factory=lambda: exact) as runner:
        runner.run(main(**vars(parser.parse_args())))
