"""A process that shares a card: its page, the page of its orders, and the connection to it."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kfext.hook import words
from kfext.hook.link import send
from kfext.hook.page import Page

_LEASE_NS = 2 * 10**9
"""For how long orders hold: past that a process takes the agent for dead."""
_NS = 1e9
_NO_END = 2**63


class Process:
    """One process of a sharer. `number` tells it from all others since the agent began.

    What its page holds was written by the user's code: any number may be there. Raises ValueError
    for a descriptor that is no page of this layout.
    """

    def __init__(self, number: int, peer: socket.socket, page: int) -> None:
        self.number = number
        self._peer = peer
        self._peer.setblocking(False)
        self._descriptor = os.dup(page)
        try:
            self._page = Page.of(page).words
            if self._page[words.LAYOUT] != words.VERSION:
                raise ValueError(f"its page has the layout {self._page[words.LAYOUT]}")
        except ValueError:
            os.close(self._descriptor)
            raise
        self._orders = Page.make()
        self._orders.words[words.LAYOUT] = words.VERSION

    def __getitem__(self, word: int) -> int:
        return self._page[word]

    def seconds(self, word: int) -> float:
        """Return a word of its page that is a time, in seconds."""
        return self._page[word] / _NS

    def send_orders(self) -> None:
        """Give the process the page that its orders are on."""
        assert self._orders.descriptor is not None
        self._send({"orders": True}, [self._orders.descriptor])

    def send_highs(self, highs: Sequence["Process"], bell: socket.socket | None) -> None:
        """Give it the pages of the processes before which it gives way."""
        descriptors = [one._descriptor for one in highs]
        if bell is not None:
            descriptors.append(bell.fileno())
        self._send({"highs": len(highs)}, descriptors)

    def send_bells(self, bells: Sequence[socket.socket]) -> None:
        """Give it what it rings when it becomes idle."""
        self._send({"bells": len(bells)}, [one.fileno() for one in bells])

    def order(self, orders: "Orders", *, now: int) -> None:
        """Write its orders, which hold for a lease from `now`, in nanoseconds."""
        page = self._orders.words
        page[words.MODE] = orders.mode
        page[words.MICRO_STEP_NS] = int(orders.micro_step * _NS)
        page[words.ALLOWANCE_NS] = int(orders.allowance * _NS)
        page[words.TICKETS] = orders.tickets
        page[words.TURN] = _NO_END if orders.turn else 0
        page[words.LEASE] = now + _LEASE_NS

    def end(self) -> None:
        """Have the connection end; whoever reads it closes the process then."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, which nothing may read any more."""
        self._peer.close()
        os.close(self._descriptor)

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Send without waiting. A process that does not read has to connect, and to begin, again.

        What it has missed, such as before whom it gives way, must not stay unknown to it.
        """
        try:
            send(self._peer, message, descriptors)
        except OSError:
            self.end()


@dataclass(frozen=True, slots=True)
class Orders:
    """What a process of low priority is to do; see `kfext.hook.words`. Times are in seconds."""

    mode: int
    micro_step: float
    allowance: float = 0.0
    tickets: int = 0
    turn: bool = True
