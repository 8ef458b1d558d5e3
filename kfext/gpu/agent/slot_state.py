"""What there is in a slot: its card, or those of the node that it may get, and if they will do."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kfext.gpu.device.inventory import NOT_SHOWN, Card

_MIG = "MIG-"
"""Begins the id of a part of a card that MIG has split."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """What there is in a slot.

    `memory`: in MiB; of a slot without a card, that of the smallest it may get.
    `trouble`: why it takes no sharers, empty if it does; of a slot without a card, why none that it
    may get would. `moved`: see `Slots.moved`.
    """

    memory: int
    trouble: str
    moved: bool


def reserved(card: str, present: Sequence[Card], *, moved: bool) -> SlotState:
    """Return the state of a slot by the id of its card; `present` are those of the driver."""
    found = _card(card, present)
    return SlotState(found.memory, found.trouble, moved)


def empty(
    offered: Collection[str], present: Sequence[Card], *, taken: Collection[str], moved: bool
) -> SlotState:
    """Return the state of a slot without a card.

    `offered`: the ids of the cards that kubelet gives out, empty while that is not known; then it
    may be any of the driver's. `taken`: those that other slots have.
    """
    ids = sorted(offered) or [card.uuid for card in present]
    free = [_card(one, present) for one in ids if one not in taken]
    well = [card.memory for card in free if not card.trouble]
    trouble = free[0].trouble if free and not well else ""
    return SlotState(min(well, default=0), trouble, moved)


def _card(device: str, present: Sequence[Card]) -> Card:
    """Return the card with an id of kubelet's, with a trouble if it cannot be shared."""
    uuid, replicated, _ = device.partition("::")
    if replicated:
        return Card(device, 0, "NVIDIA's device plugin gives it to several pods at once")
    if uuid.startswith(_MIG):
        return Card(device, 0, "it is a part of a GPU that is split by MIG")
    known = {card.uuid: card for card in present}
    return known.get(uuid, Card(device, 0, NOT_SHOWN))
