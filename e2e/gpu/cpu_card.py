"""A card simulated by the CPU: it runs one kernel at a time, and a kernel only takes time.

    python3 -m e2e.gpu.cpu_card SOCKET

The processes on the card are its clients. They launch kernels without waiting, as on a GPU, and the
card runs kernels of its clients in turns, as with time slices. A kernel begins at the end of its
predecessor, not when this process is scheduled, so a busy CPU does not slow the card. The counters
show whether a client yielded to another. The driver within a job is `e2e/jobs/cpu_card.py`.
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
"""From a client: b"k", the seconds of a kernel, and the time of its launch."""
MARKER = struct.Struct("=cqd")
"""From a client: b"m", the number of a marker, and the time at which it was set. The card answers
with the same when all kernels before it have ended, and the time of that end."""
REPORT = b"r"
"""From any process: a request for the counters, answered in JSON; see `report`."""


def report(path: str) -> dict[str, Any]:
    """Return the counters of the card under a path and of its clients."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as card:
        card.connect(path)
        card.send(REPORT)
        counters: dict[str, Any] = json.loads(card.recv(2**16))
    return counters


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel, or a marker with its number, and the time of its launch.

    `came`: for the first kernel of a micro-step, the time of the marker before it.
    """

    at: float
    seconds: float = 0.0
    marker: int | None = None
    came: float | None = None


@dataclass(slots=True)
class Client:
    """A process on the card.

    A micro-step is all the kernels between two of its markers.
    `kernels`, `beside`: all kernels that began, and only the kernels beside work of another client.
    `late`: the kernels of micro-steps that should not have begun, however slow the CPU: another
    client had work when the marker before was set, and ever since. A client without a marker never
    waited. `micro_steps`: its micro-steps on the card now, or when it was killed; `outstanding`:
    the most at any time. `came`: the time of its last marker.
    """

    name: str
    peer: socket.socket
    kernels: int = 0
    beside: int = 0
    late: int = 0
    seconds: float = 0.0
    outstanding: int = 0
    given: deque[_Launch] = field(default_factory=deque)
    micro_steps: int = 0
    works_since: float | None = None
    came: float = math.inf
    is_late: bool = False


class CpuCard:
    """The card, as a server of SOCK_SEQPACKET. A client's first message is its name."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        path.chmod(0o666)
        self._listening.listen()
        self._peers: list[socket.socket] = []
        self._clients: dict[socket.socket, Client] = {}
        self._gone: list[Client] = []
        self._turns: deque[Client] = deque()
        self._runs: Client | None = None
        self._began, self._ends = 0.0, 0.0
        self._opened = monotonic()

    def serve(self) -> None:
        """Serve without end."""
        while True:
            wait = max(self._ends - monotonic(), 0.0) if self._runs else None
            # Not epoll, which waits for whole milliseconds.
            ready, _, _ = select.select([self._listening, *self._peers], [], [], wait)
            for peer in ready:
                if peer is self._listening:
                    self._peers.append(self._listening.accept()[0])
                else:
                    self._hear(peer)
            self._advance(monotonic())

    def _hear(self, peer: socket.socket) -> None:
        """Handle all messages of a client."""
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
            with suppress(OSError):  # gone meanwhile, as its end will show
                peer.send(json.dumps(self._report()).encode())
        elif client is None:
            self._clients[peer] = client = Client(message.decode(), peer)
            self._turns.append(client)
        elif message[:1] == b"k":
            _, seconds, at = KERNEL.unpack(message)
            first = not client.given or client.given[-1].marker is not None
            client.micro_steps += first
            client.outstanding = max(client.outstanding, client.micro_steps)
            client.given.append(_Launch(at, seconds, came=client.came if first else None))
            if client.works_since is None:
                client.works_since = at
        else:
            _, number, at = MARKER.unpack(message)
            client.came = at
            client.given.append(_Launch(at, marker=number))
            self._reach(client, at)

    def _advance(self, now: float) -> None:
        """End the kernels that are due until now, and begin the next."""
        while True:
            if self._runs is not None:
                if self._ends > now:
                    return
                self._release(self._ends)
            if not self._begin():
                return

    def _begin(self) -> bool:
        """Begin the kernel of the client that has waited longest for a turn, if there is any."""
        waiting = [turn for turn in self._turns if turn.given]
        if not waiting:
            return False
        # The first client to launch on the free card runs, else the turn decides.
        free = self._ends
        client = min(waiting, key=lambda turn: max(turn.given[0].at, free))
        begins = max(client.given[0].at, free)
        self._turns.remove(client)
        self._turns.append(client)
        client.kernels += 1
        others = (turn.works_since for turn in self._turns if turn is not client)
        since = min((at for at in others if at is not None), default=math.inf)
        client.beside += since < begins
        kernel = client.given[0]
        if kernel.came is not None:
            client.is_late = since <= kernel.came
        client.late += client.is_late
        self._runs, self._began, self._ends = client, begins, begins + kernel.seconds
        return True

    def _release(self, at: float) -> None:
        """Record the end of the kernel."""
        client, self._runs = self._runs, None
        assert client is not None
        client.seconds += at - self._began
        client.given.popleft()
        client.micro_steps -= not client.given or client.given[0].marker is not None
        self._reach(client, at)
        if not client.given:
            client.works_since = None

    def _reach(self, client: Client, at: float) -> None:
        """Announce the markers that have no kernel before them."""
        while client.given and client.given[0].marker is not None:
            kernel = client.given.popleft()
            with suppress(OSError):  # it was killed, as its end will show
                client.peer.send(MARKER.pack(b"m", kernel.marker, max(kernel.at, at)))

    def _end(self, peer: socket.socket) -> None:
        """Remove a process that has ended or was killed, perhaps within a kernel."""
        self._peers.remove(peer)
        client = self._clients.pop(peer, None)
        peer.close()
        if client is None:
            return
        self._gone.append(client)
        self._turns.remove(client)
        if self._runs is client:
            self._runs, self._ends = None, monotonic()
            client.seconds += self._ends - self._began

    def _report(self) -> dict[str, object]:
        counted = ("name", "kernels", "beside", "late", "seconds", "outstanding", "micro_steps")
        clients = [*self._gone, *self._clients.values()]
        shown = [{name: getattr(client, name) for name in counted} for client in clients]
        return {"seconds": monotonic() - self._opened, "clients": shown}


def main() -> None:
    """Serve a card under the path given."""
    CpuCard(Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
