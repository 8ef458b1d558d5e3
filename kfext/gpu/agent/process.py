"""A process that shares a card: its page, its orders, the connection to it, and its pod's bell."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import send
from kfext.gpu.hook.page import Page
from kfext.gpu.rules.measures import BoundedGrowth
from kfext.gpu.rules.neighbours import Ruling

_LEASE_NS = 2 * 10**9
"""How long the orders are valid; after that a process regards the agent as dead."""
_NS = 1e9
_NO_END = 2**63


class Process:
    """One process of a sharer; `number` is unique since the start of the agent.

    `descriptor`: the descriptor of its page. The user's code writes the page, so any number may be
    on it. Raises ValueError if the descriptor is not of a page with this layout.
    """

    def __init__(self, number: int, peer: socket.socket, descriptor: int) -> None:
        self.number = number
        self._peer = peer
        self._peer.setblocking(False)
        self._page = Page.from_descriptor(descriptor)
        self._words = self._page.words
        try:
            if self._words[words.LAYOUT] != words.VERSION:
                raise ValueError(f"its page has the layout {self._words[words.LAYOUT]}")
            self._orders = Page.make()
        except (OSError, ValueError):
            self._page.close()
            raise
        self._orders.words[words.LAYOUT] = words.VERSION
        self._growths: dict[int, BoundedGrowth] = {}

    @property
    def descriptor(self) -> int:
        """The descriptor of its page, for other processes."""
        return self._page.descriptor

    def __getitem__(self, word: int) -> int:
        return self._words[word]

    def seconds(self, word: int) -> float:
        """Return a time on its page, in seconds."""
        return self._words[word] / _NS

    def growth(self, word: int, *, now: float) -> float:
        """Return the growth of a time on its page since the last call, in seconds; at first 0."""
        total = self.seconds(word)
        if word == words.BUSY_NS and self._words[words.BUSY] == 1:  # not yet in BUSY_NS
            total += max(now - self.seconds(words.CHANGED), 0.0)
        growth = self._growths.setdefault(word, BoundedGrowth(total, now=now))
        return growth.update(total, now=now)

    def send_orders(self) -> None:
        """Send the process the page with its orders."""
        self._send({"orders": True}, [self._orders.descriptor])

    def send_highs(self, pages: Sequence[int], bell: socket.socket) -> None:
        """Send the pages of the processes to give way to, and the bell that it waits for."""
        self._send({"highs": len(pages)}, [*pages, bell.fileno()])

    def send_bells(self, bells: Sequence[socket.socket]) -> None:
        """Send the bells that it rings when it becomes idle."""
        self._send({"bells": len(bells)}, [bell.fileno() for bell in bells])

    def order(self, mode: int, ruling: Ruling, *, allowance: float, turn: bool, now: float) -> None:
        """Write its orders, which hold for a lease; see `kfext.gpu.hook.words`.

        `mode`: a number of `words.MODE`. `allowance`: the seconds that it may still work while the
        high-priority job is busy. `turn`: whether it is its turn among the low-priority sharers.
        """
        page = self._orders.words
        allowed = self._words[words.INTRUDED_NS] + int(allowance * _NS)
        page[words.MODE] = mode
        page[words.MICRO_STEP_NS] = int(ruling.micro_step * _NS)
        page[words.PRICE] = round(ruling.price * 1000)
        page[words.ALLOWANCE_NS] = min(allowed, _NO_END)
        page[words.TURN] = _NO_END if turn else 0
        page[words.LEASE] = int(now * _NS) + _LEASE_NS

    def end(self) -> None:
        """End the connection; the thread that waits for that end then calls `close`."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection and the pages. The process must not be used after that."""
        self._peer.close()
        self._page.close()
        self._orders.close()

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Send without waiting; disconnect a process that does not read, so that it reconnects.

        It must not miss a message, such as the pages of processes to give way to.
        """
        try:
            send(self._peer, message, descriptors)
        except OSError:
            self.end()


class Bell:
    """A pair of sockets that wakes the processes of one pod, which wait at their gates.

    `receiver`: the end that the processes read; it cannot send. `sender`: the end for the processes
    that wake them. If several processes wait, a ring may wake only one of them; the others check
    again soon after.
    """

    def __init__(self) -> None:
        self.receiver, self.sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.receiver.shutdown(socket.SHUT_WR)
        self.sender.shutdown(socket.SHUT_RD)

    def ring(self) -> None:
        """Wake the processes."""
        with suppress(OSError):  # the bell is full, so the processes have enough to read
            self.sender.send(b"t", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close both ends."""
        self.receiver.close()
        self.sender.close()
