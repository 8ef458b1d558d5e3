"""The agent's orders for a low-priority job, and what they mean for a micro-step."""

from __future__ import annotations

import socket
from typing import Any

from . import words
from .link import close_all
from .page import words_of
from .pulse import PULSE_SECONDS

PASS, INTRUDE, TICKET, WAIT = "pass", "intrude", "ticket", "wait"
"""The results of `Orders.word`."""
_DEAD_NS = int(5 * PULSE_SECONDS * 1e9)
_MICRO_STEP_SECONDS = 0.005
"""The default length without an order of the agent."""


class Orders:
    """The agent's orders for this job. Another thread replaces each attribute in one step.

    `page`: the agent's words, or None before it has sent any. `highs`: the pages of the processes
    of the high-priority job on the card. `bell`: rings when one of these processes becomes idle.
    """

    def __init__(self) -> None:
        self.page: memoryview | None = None
        self.highs: tuple[memoryview, ...] = ()
        self.bell: socket.socket | None = None

    def take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Apply a message of the agent. Raises ValueError for a malformed message.

        `orders`: the agent's page comes with it. `highs`: how many pages come, with the bell last.
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
        self.highs = tuple(words_of(descriptor) for descriptor in descriptors)

    def led(self, now: int) -> bool:
        """Return whether an agent lives."""
        page = self.page
        return page is not None and now < page[words.LEASE]

    def busy(self, now: int) -> bool:
        """Return whether the high-priority job lives and has work on the card."""
        return any(
            high[words.BUSY] == 1 and now - high[words.PULSE] <= _DEAD_NS for high in self.highs
        )

    def micro_step(self) -> float:
        """Return the longest that a micro-step should take, in seconds."""
        page = self.page
        ordered = page[words.MICRO_STEP_NS] if page is not None else 0
        return ordered / 1e9 if ordered else _MICRO_STEP_SECONDS

    def tickets(self) -> int:
        """Return how many tickets the agent has given in total."""
        page = self.page
        return page[words.TICKETS] if page is not None else 0

    def word(self, now: int, *, intruded: int, tickets: int) -> str:
        """Return whether a micro-step may begin.

        `intruded`: how long (ns) the process has worked beside a busy high-priority job.
        `tickets`: how many there were when it last passed. Tickets do not add up while it needs
        none. Without an agent it passes only while the card is idle; see `PACE`.
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
