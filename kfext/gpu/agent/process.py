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
"""The validity of an order; after it a process regards the agent as dead."""
_NS = 1e9
_NO_END = 2**63


class Process:
    """One process of a sharer; `number` is unique since the start of the agent.

    The user's code writes the page, so any number may be on it. Raises ValueError for a descriptor
    of anything but a page of this layout.
    """

    def __init__(self, number: int, peer: socket.socket, page: int) -> None:
        self.number = number
        self._peer = peer
        self._peer.setblocking(False)
        self._own = Page.from_descriptor(page)
        self._page = self._own.words
        try:
            if self._page[words.LAYOUT] != words.VERSION:
                raise ValueError(f"its page has the layout {self._page[words.LAYOUT]}")
            self._orders = Page.make()
        except (OSError, ValueError):
            self._own.close()
            raise
        self._orders.words[words.LAYOUT] = words.VERSION
        self._growths: dict[int, BoundedGrowth] = {}

    @property
    def descriptor(self) -> int:
        """The descriptor of its page, for other processes."""
        return self._own.descriptor

    def __getitem__(self, word: int) -> int:
        return self._page[word]

    def seconds(self, word: int) -> float:
        """Return a time on its page, in seconds."""
        return self._page[word] / _NS

    def grown(self, word: int, *, now: float) -> float:
        """Return the growth of a time on its page since the last call, in seconds; first 0."""
        counted = self.seconds(word)
        if word == words.BUSY_NS and self._page[words.BUSY] == 1:  # the page counts at the end
            counted += max(now - self.seconds(words.CHANGED), 0.0)
        growth = self._growths.setdefault(word, BoundedGrowth(counted, now=now))
        return growth.grown(counted, now=now)

    def send_orders(self) -> None:
        """Send the process the page with its orders."""
        self._send({"orders": True}, [self._orders.descriptor])

    def send_highs(self, pages: Sequence[int], bell: socket.socket) -> None:
        """Send the pages of the processes to give way to, and its own bell."""
        self._send({"highs": len(pages)}, [*pages, bell.fileno()])

    def send_bells(self, bells: Sequence[socket.socket]) -> None:
        """Send the bells that it rings when it becomes idle."""
        self._send({"bells": len(bells)}, [bell.fileno() for bell in bells])

    def order(self, mode: int, ruling: Ruling, *, allowance: float, turn: bool, now: float) -> None:
        """Write its orders, which hold for a lease; see `kfext.gpu.hook.words`.

        `allowance`: the seconds that it may intrude from now on. `turn`: whether it has the turn.
        """
        page = self._orders.words
        allowed = self._page[words.INTRUDED_NS] + int(allowance * _NS)
        page[words.MODE] = mode
        page[words.MICRO_STEP_NS] = int(ruling.micro_step * _NS)
        page[words.PRICE] = round(ruling.price * 1000)
        page[words.ALLOWANCE_NS] = min(allowed, _NO_END)
        page[words.TURN] = _NO_END if turn else 0
        page[words.LEASE] = int(now * _NS) + _LEASE_NS

    def end(self) -> None:
        """End the connection; the thread that waits for its end then closes the process."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection and the pages. The process must not be used after that."""
        self._peer.close()
        self._own.close()
        self._orders.close()

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Send without waiting. A process that does not read must connect again.

        It must not miss a message, such as the pages of processes to give way to.
        """
        try:
            send(self._peer, message, descriptors)
        except OSError:
            self.end()


class Bell:
    """A pair of sockets that wakes the processes of one pod, which wait at their gates.

    `heard`: the end that the processes hear; it cannot send. `rung`: the end that others ring. If
    several processes wait, a ring may wake only one; the others check again soon after.
    """

    def __init__(self) -> None:
        self.heard, self.rung = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heard.shutdown(socket.SHUT_WR)
        self.rung.shutdown(socket.SHUT_RD)

    def ring(self) -> None:
        """Wake the processes."""
        with suppress(OSError):  # the bell is full, so the processes have enough to read
            self.rung.send(b"t", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close both ends."""
        self.heard.close()
        self.rung.close()
