"""What the agent has for a job of low priority, and what follows from it for a micro-step."""

from __future__ import annotations

import socket
from typing import Any

from . import words
from .link import close_all
from .page import words_of
from .pulse import PULSE_SECONDS

PASS, INTRUDE, TICKET, WAIT = "pass", "intrude", "ticket", "wait"
"""What `Orders.word` returns."""
_DEAD_NS = int(5 * PULSE_SECONDS * 1e9)
_MICRO_STEP_SECONDS = 0.005
"""Where the agent has not ordered another."""


class Orders:
    """What the agent has for this job. All of it is replaced by another thread, each at once.

    `page`: the agent's words, None before it has sent any; `highs`: the pages of the processes of
    the job of high priority on the card; `bell`: is written to when one of them becomes idle.
    """

    def __init__(self) -> None:
        self.page: memoryview | None = None
        self.highs: tuple[memoryview, ...] = ()
        self.bell: socket.socket | None = None

    def take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Take in a message of the agent. Raises ValueError for one that cannot be meant.

        `orders`: its page comes with it; `highs`: how many pages come, and after them the bell.
        """
        highs = message.get("highs", 0)
        wanted = 1 if message.get("orders") else highs + 1 if highs else 0
        if len(descriptors) != wanted:
            close_all(descriptors)
            raise ValueError(f"{len(descriptors)} descriptors instead of {wanted}")
        if message.get("orders"):
            self.page = words_of(descriptors[0])
            return
        if highs:
            self.bell = socket.socket(fileno=descriptors.pop())
        self.highs = tuple(words_of(one) for one in descriptors)

    def led(self, now: int) -> bool:
        """Whether an agent lives."""
        page = self.page
        return page is not None and now < page[words.LEASE]

    def busy(self, now: int) -> bool:
        """Whether the job of high priority lives and has work on the card."""
        return any(
            high[words.BUSY] == 1 and now - high[words.PULSE] <= _DEAD_NS for high in self.highs
        )

    def micro_step(self) -> float:
        """Return how long a micro-step should take at most, in seconds."""
        page = self.page
        ordered = page[words.MICRO_STEP_NS] if page is not None else 0
        return ordered / 1e9 if ordered else _MICRO_STEP_SECONDS

    def tickets(self) -> int:
        """Return how many tickets the agent has given, in all."""
        page = self.page
        return page[words.TICKETS] if page is not None else 0

    def word(self, now: int, *, intruded: int, tickets: int) -> str:
        """Return whether a micro-step may begin.

        `intruded`: for how long (ns) the process has worked beside a busy job of high priority;
        `tickets`: how many there were when it last passed. Tickets do not add up while it needs
        none. Without an agent nothing but the idle card lets it pass; see `PACE`.
        """
        page = self.page
        if page is None or now >= page[words.LEASE]:
            return WAIT if self.busy(now) else PASS
        word = self._without_tickets(page, now, intruded)
        return TICKET if word == WAIT and tickets != page[words.TICKETS] else word

    def _without_tickets(self, page: memoryview, now: int, intruded: int) -> str:
        mode = page[words.MODE]
        if mode == words.SHUT or now >= page[words.TURN]:
            return WAIT
        if mode == words.OPEN or not self.busy(now):
            return PASS
        return INTRUDE if intruded < page[words.ALLOWANCE_NS] else WAIT
