"""A job on a card that the CPU simulates, as a process that a test may kill at any time.

    python -m tests.adapters.gpu.sharer_process high|low AGENT CARD

AGENT and CARD are paths of sockets. A high-priority job has bursts of work, a low-priority job
always has work.
"""

import os
import socket
import sys
import time

from e2e.gpu.cpu_card import KERNEL, MARKER
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import AgentConnection
from kfext.gpu.hook.beacon import Beacon
from kfext.gpu.hook.device import TimedMarker
from kfext.gpu.hook.gate import Gate, Orders
from kfext.gpu.hook.page import Page

BURST = 40
"""The kernels in a burst, of a millisecond each; a pause of the same length follows."""
_MILLISECOND = 0.001


class Marker:
    """A marker that has been reached: `Card.run` waits for all its kernels."""

    def wait(self, expected: int | None = None) -> None:
        pass

    def reached(self) -> bool:
        return True

    def seconds_since(self, earlier: TimedMarker) -> float:
        return 0.0


class Card:
    """The driver of the card in this process."""

    def __init__(self, path: str, name: str) -> None:
        self._peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._peer.connect(path)
        self._peer.send(name.encode())

    def ready(self) -> bool:
        return True

    def capturing(self) -> bool:
        return False

    def mark(self) -> Marker:
        return Marker()

    def memory(self) -> int:
        return 0

    def run(self, kernels: int) -> None:
        for _ in range(kernels):
            self._peer.send(KERNEL.pack(b"k", _MILLISECOND, time.monotonic()))
        self._peer.send(MARKER.pack(b"m", 0, time.monotonic()))
        self._peer.recv(MARKER.size)


def high(agent: str, card: Card, page: Page) -> None:
    beacon = Beacon(page.words, memory=card.memory, fail=lambda error: os._exit(1))
    AgentConnection(agent, page=page, handle=beacon.handle)
    while True:
        begun = beacon.begin()
        card.run(BURST)
        beacon.end(card.mark(), begun)
        time.sleep(BURST * _MILLISECOND)


def low(agent: str, card: Card, page: Page) -> None:
    orders = Orders()
    AgentConnection(agent, page=page, handle=orders.handle)
    gate = Gate(page.words, orders, card)
    while orders.page is None:
        time.sleep(_MILLISECOND)
    while True:
        gate.enter()
        card.run(1)


def main() -> None:
    role, agent, card = sys.argv[1:]
    page = Page.make()
    page.words[words.LAYOUT] = words.VERSION
    (high if role == "high" else low)(agent, Card(card, role), page)


if __name__ == "__main__":
    main()
