"""A process that shares a card: its page, the page of its orders, and the connection to it."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kfext.gpu.hook import words
from kfext.gpu.hook.link import send
from kfext.gpu.hook.page import Page
from kfext.gpu.rules.tally import Tally

_LEASE_NS = 2 * 10**9
"""For how long an order holds: past that a process takes the agent for dead."""
_NS = 1e9
_NO_END = 2**63
_WORD = 2**64


@dataclass(frozen=True, slots=True)
class Order:
    """What a process of low priority is to do; see `kfext.gpu.hook.words`. Times are in seconds.

    `allowance`: for which it may intrude from now on; `ticket`: it may begin one step more.
    """

    mode: int
    micro_step: float
    allowance: float = 0.0
    ticket: bool = False
    turn: bool = True


class Process:
    """One process of a sharer. `number` tells it from all others since the agent began.

    What its page holds was written by the user's code: any number may be there. Raises ValueError
    for a descriptor that is no page of this layout.
    """

    def __init__(self, number: int, peer: socket.socket, page: int) -> None:
        self.number = number
        self._peer = peer
        self._peer.setblocking(False)
        self._own = Page.of(page)
        self._page = self._own.words
        try:
            if self._page[words.LAYOUT] != words.VERSION:
                raise ValueError(f"its page has the layout {self._page[words.LAYOUT]}")
            self._orders = Page.make()
        except (OSError, ValueError):
            self._own.close()
            raise
        self._orders.words[words.LAYOUT] = words.VERSION
        # A process that an earlier agent has led must not take our first count for a ticket.
        self._tickets = self._page[words.TICKETS_SEEN]
        self._tallies: dict[int, Tally] = {}

    @property
    def descriptor(self) -> int:
        """That of its page, for others."""
        return self._own.descriptor

    def __getitem__(self, word: int) -> int:
        return self._page[word]

    def seconds(self, word: int) -> float:
        """Return a word of its page that is a time, in seconds."""
        return self._page[word] / _NS

    def grown(self, word: int, *, now: float) -> float:
        """Return by how many seconds such a word has grown since the last call, 0 at the first."""
        counted = self.seconds(word)
        if word == words.BUSY_NS and self._page[words.BUSY] == 1:  # counted when that ends
            counted += max(now - self.seconds(words.CHANGED), 0.0)
        tally = self._tallies.setdefault(word, Tally(counted, now=now))
        return tally.grown(counted, now=now)

    def send_orders(self) -> None:
        """Give the process the page that its orders are on."""
        self._send({"orders": True}, [self._orders.descriptor])

    def send_highs(self, pages: Sequence[int], bell: socket.socket) -> None:
        """Give it the pages of the processes before which it gives way, and what wakes it."""
        self._send({"highs": len(pages)}, [*pages, bell.fileno()])

    def send_bells(self, bells: Sequence[socket.socket]) -> None:
        """Give it what it rings when it becomes idle."""
        self._send({"bells": len(bells)}, [one.fileno() for one in bells])

    def order(self, order: Order, *, now: float) -> None:
        """Write its order, which holds for a lease. The counts of the process itself go on."""
        self._tickets = (self._tickets + order.ticket) % _WORD
        page = self._orders.words
        allowed = self._page[words.INTRUDED_NS] + int(order.allowance * _NS)
        page[words.MODE] = order.mode
        page[words.MICRO_STEP_NS] = int(order.micro_step * _NS)
        page[words.ALLOWANCE_NS] = min(allowed, _NO_END)
        page[words.TICKETS] = self._tickets
        page[words.TURN] = _NO_END if order.turn else 0
        page[words.LEASE] = int(now * _NS) + _LEASE_NS

    def end(self) -> None:
        """Have the connection end; whoever waits for that closes the process then."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection and the pages. Nothing may use the process any more."""
        self._peer.close()
        self._own.close()
        self._orders.close()

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Send without waiting. A process that does not read has to connect, and to begin, again.

        What it has missed, such as before whom it gives way, must not stay unknown to it.
        """
        try:
            send(self._peer, message, descriptors)
        except OSError:
            self.end()
