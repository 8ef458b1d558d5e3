"""A card that the CPU plays: one kernel at a time, and a kernel sleeps while it has the card.

    python3 -m e2e.gpu.cpu_card SOCKET

The processes on the card are its clients. They take turns kernel by kernel, as with time slices. It
counts what tells whether one gave way to another. What runs in a job is `e2e/jobs/cpu_card.py`.
"""

import json
import selectors
import socket
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ASK, DONE, WORK, NO_WORK = b"a", b"d", b"w", b"n"
"""From a client: it wants the card for a kernel; the kernel has ended; it has kernels to run from
now on; it has none any more."""
GRANT = b"g"
LATE_SECONDS = 0.02
"""After that, what a gate of 5 ms had let through is over: two micro-steps, and some delay."""
REPORT = b"r"
"""From anybody: what it has counted, in JSON."""


@dataclass(slots=True)
class Client:
    """A process on the card. `has_work`: also while it waits for its turn.

    `kernels`, `beside`: how many it has begun, and how many of them while another one had work;
    `late`: when another one had had work for more than LATE_SECONDS.
    """

    name: str
    peer: socket.socket
    has_work: bool = False
    kernels: int = 0
    beside: int = 0
    late: int = 0
    seconds: float = 0.0
    since: float = 0.0
    works_since: float = 0.0


class CpuCard:
    """The card, as a server of SOCK_SEQPACKET. A client's first message is its name."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        path.chmod(0o666)
        self._listening.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._clients: dict[int, Client] = {}
        self._gone: list[Client] = []
        self._queue: deque[int] = deque()
        self._holder: int | None = None
        self._began = monotonic()

    def serve(self) -> None:
        """Serve for ever."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    peer, _ = self._listening.accept()
                    self._selector.register(peer, selectors.EVENT_READ)
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._hear(key.fileobj)

    def _hear(self, peer: socket.socket) -> None:
        number = peer.fileno()
        try:
            message = peer.recv(256)
        except OSError:
            message = b""
        client = self._clients.get(number)
        if not message:
            self._end(number, peer)
        elif message == REPORT:
            with suppress(OSError):  # gone meanwhile, as its end will show
                peer.send(json.dumps(self._report()).encode())
        elif client is None:
            self._clients[number] = Client(message.decode(), peer)
        elif message == ASK:
            self._queue.append(number)
            self._grant()
        elif message == DONE:
            self._release(client)
        else:
            client.has_work, client.works_since = message == WORK, monotonic()

    def _grant(self) -> None:
        """Give the card to the client that has waited for longest, if it is free."""
        while self._holder is None and self._queue:
            number = self._queue.popleft()
            client = self._clients[number]
            try:
                client.peer.send(GRANT)
            except OSError:
                continue  # it was killed, as its end will show
            client.kernels += 1
            client.since = monotonic()
            others = (one for one in self._clients.values() if one is not client and one.has_work)
            since = min((one.works_since for one in others), default=client.since)
            client.beside += since < client.since
            client.late += client.since - since > LATE_SECONDS
            self._holder = number

    def _release(self, client: Client) -> None:
        client.seconds += monotonic() - client.since
        self._holder = None
        self._grant()

    def _end(self, number: int, peer: socket.socket) -> None:
        """Take in that a process has ended, or was killed, perhaps within a kernel."""
        self._selector.unregister(peer)
        client = self._clients.pop(number, None)
        peer.close()
        if client is None:
            return
        self._gone.append(client)
        self._queue = deque(one for one in self._queue if one != number)
        if self._holder == number:
            self._release(client)

    def _report(self) -> dict[str, object]:
        counted = ("name", "kernels", "beside", "late", "seconds")
        clients = [*self._gone, *self._clients.values()]
        shown = [{name: getattr(one, name) for name in counted} for one in clients]
        return {"seconds": monotonic() - self._began, "clients": shown}


def main() -> None:
    """Serve a card under the path given."""
    CpuCard(Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
