"""A card simulated by the CPU: it runs one kernel at a time, and a kernel only takes time.

    python3 -m e2e.gpu.cpu_card SOCKET

The processes that use the card are its clients. They launch kernels without waiting, as on a GPU,
and the card runs the kernels of its clients in turn, like time slices. A kernel begins exactly at
the end of its predecessor, even if this process runs late, so a busy CPU does not slow the card.
The counters show whether a client yielded to another. Jobs use the driver `e2e/jobs/cpu_card.py`.
"""

import json
import math
import select
import socket
import struct
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

KERNEL = struct.Struct("=cdd")
"""A client's launch of a kernel: b"k", its duration in seconds, and the time of the launch."""
MARKER = struct.Struct("=cqd")
"""A client's marker: b"m", its number, and the time at which it was set. When all kernels before it
have ended, the card answers with b"m", the number, and the time of that end."""
REPORT = b"r"
"""A request for the counters, from any process; the answer is JSON. See `report`."""


def report(path: str) -> dict[str, Any]:
    """Return the counters of the card with the socket `path`, and of its clients.

    `idle`: the seconds without a kernel, by the clients before and after: "high to low".
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as card:
        card.connect(path)
        card.send(REPORT)
        counters: dict[str, Any] = json.loads(card.recv(2**16))
    return counters


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel, or a marker with its number; `at` is the time of the launch.

    `marked`: for the first kernel of a micro-step, the time of the marker before it.
    """

    at: float
    seconds: float = 0.0
    marker: int | None = None
    marked: float | None = None


@dataclass(slots=True)
class Client:
    """A process on the card.

    A micro-step consists of the kernels between two of its markers.

    `kernels`: the kernels that began. `beside`: the kernels that began while another client had
    work. `late`: the kernels of micro-steps that should not have begun, however slow the CPU is:
    another client had work from the marker before the micro-step until it began. All kernels of a
    client without markers are late. `micro_steps`: its micro-steps on the card now, or when it was
    killed. `outstanding`: the maximum of `micro_steps`. `marked`: the time of its last marker.
    """

    name: str
    peer: socket.socket
    kernels: int = 0
    beside: int = 0
    late: int = 0
    seconds: float = 0.0
    outstanding: int = 0
    launches: deque[_Launch] = field(default_factory=deque)
    micro_steps: int = 0
    busy_since: float | None = None
    marked: float = math.inf
    is_late: bool = False


class CpuCard:
    """The card, as a server on a SOCK_SEQPACKET socket. A client's first message is its name."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        path.chmod(0o666)
        self._listening.listen()
        self._peers: list[socket.socket] = []
        self._clients: dict[socket.socket, Client] = {}
        self._ended: list[Client] = []
        self._turns: deque[Client] = deque()
        self._running: Client | None = None
        self._last = ""
        self._idle: dict[str, float] = {}
        self._began, self._ends = 0.0, 0.0
        self._opened = monotonic()

    def serve(self) -> None:
        while True:
            wait = max(self._ends - monotonic(), 0.0) if self._running else None
            # epoll would only wait for whole milliseconds.
            ready, _, _ = select.select([self._listening, *self._peers], [], [], wait)
            for peer in ready:
                if peer is self._listening:
                    self._peers.append(self._listening.accept()[0])
                else:
                    self._hear(peer)
            self._advance(monotonic())

    def _hear(self, peer: socket.socket) -> None:
        while peer in self._peers:
            try:
                message = peer.recv(256, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            self._handle(peer, message)

    def _handle(self, peer: socket.socket, message: bytes) -> None:
        client = self._clients.get(peer)
        if not message:
            self._end(peer)
        elif message == REPORT:
            with suppress(OSError):  # it has ended; the next read shows that
                peer.send(json.dumps(self._report()).encode())
        elif client is None:
            self._clients[peer] = client = Client(message.decode(), peer)
            self._turns.append(client)
        elif message[:1] == b"k":
            _, seconds, at = KERNEL.unpack(message)
            first = not client.launches or client.launches[-1].marker is not None
            client.micro_steps += first
            client.outstanding = max(client.outstanding, client.micro_steps)
            client.launches.append(_Launch(at, seconds, marked=client.marked if first else None))
            if client.busy_since is None:
                client.busy_since = at
        else:
            _, number, at = MARKER.unpack(message)
            client.marked = at
            client.launches.append(_Launch(at, marker=number))
            self._reach(client, at)

    def _advance(self, now: float) -> None:
        """End the kernels that end by `now`, and begin the next kernels."""
        while True:
            if self._running is not None:
                if self._ends > now:
                    return
                self._release(self._ends)
            if not self._begin():
                return

    def _begin(self) -> bool:
        """Begin the next kernel; return whether there is a kernel."""
        waiting = [client for client in self._turns if client.launches]
        if not waiting:
            return False
        # A free card runs the first launch; otherwise the client with the oldest turn is next.
        free = self._ends
        client = min(waiting, key=lambda client: max(client.launches[0].at, free))
        begins = max(client.launches[0].at, free)
        self._turns.remove(client)
        self._turns.append(client)
        client.kernels += 1
        others = (other.busy_since for other in self._turns if other is not client)
        since = min((at for at in others if at is not None), default=math.inf)
        client.beside += since < begins
        kernel = client.launches[0]
        if kernel.marked is not None:
            client.is_late = since <= kernel.marked
        client.late += client.is_late
        if self._last:
            span = f"{self._last} to {client.name}"
            self._idle[span] = self._idle.get(span, 0.0) + begins - free
        self._running, self._began, self._ends = client, begins, begins + kernel.seconds
        self._last = client.name
        return True

    def _release(self, at: float) -> None:
        client, self._running = self._running, None
        assert client is not None
        client.seconds += at - self._began
        client.launches.popleft()
        client.micro_steps -= not client.launches or client.launches[0].marker is not None
        self._reach(client, at)
        if not client.launches:
            client.busy_since = None

    def _reach(self, client: Client, at: float) -> None:
        """Answer the markers that have no more kernels before them."""
        while client.launches and client.launches[0].marker is not None:
            marker = client.launches.popleft()
            with suppress(OSError):  # it was killed; the next read shows that
                client.peer.send(MARKER.pack(b"m", marker.marker, max(marker.at, at)))

    def _end(self, peer: socket.socket) -> None:
        """Remove a process that has ended or was killed, perhaps within a kernel."""
        self._peers.remove(peer)
        client = self._clients.pop(peer, None)
        peer.close()
        if client is None:
            return
        self._ended.append(client)
        self._turns.remove(client)
        if self._running is client:
            self._running, self._ends = None, monotonic()
            client.seconds += self._ends - self._began

    def _report(self) -> dict[str, object]:
        counters = ("name", "kernels", "beside", "late", "seconds", "outstanding", "micro_steps")
        clients = [*self._ended, *self._clients.values()]
        shown = [{name: getattr(client, name) for name in counters} for client in clients]
        return {"seconds": monotonic() - self._opened, "clients": shown, "idle": self._idle}


def main() -> None:
    """Serve a card on the socket that the first argument names."""
    CpuCard(Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
