"""The port to the cards of a node: the list of cards and their state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

NOT_SHOWN = "the driver does not show it"
"""The trouble of a card that kubelet or an earlier answer of the driver has named."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card.

    `memory`: in MiB, all of it.
    `trouble`: why it takes no sharers; empty if it does.
    `utilisation`: the part of the last moments in which it worked. `power`: the watts that it
    draws. None: unknown.
    `errors`: how often it has reported each Xid, since the inventory was made.
    """

    uuid: str
    memory: int
    trouble: str = ""
    utilisation: float | None = None
    power: float | None = None
    errors: Mapping[int, int] = field(default_factory=dict)


class Inventory(Protocol):
    """The cards of a node."""

    def cards(self) -> list[Card]:
        """Return every card, in an order that does not change. Raises InventoryError."""


class InventoryError(Exception):
    """The cards cannot be read; the message says why."""
