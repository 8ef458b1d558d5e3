"""The state of a slot: its card, or the cards that it may get, and whether they can be shared."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kfext.gpu.device.inventory import NOT_SHOWN, Card

_MIG = "MIG-"
"""The beginning of the id of a part of a card split by MIG."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """The state of a slot.

    `memory`: in MiB; without a card, of the smallest card that the slot may get.
    `trouble`: why it takes no sharers, empty if it does; without a card, why no card that it may
    get would take sharers. `moved`: see `Slots.moved`.
    """

    memory: int
    trouble: str
    moved: bool


def reserved(card: str, present: Sequence[Card], *, moved: bool) -> SlotState:
    """Return the state of a slot by the id of its card; `present`: the cards of the driver."""
    shown = _card(card, present)
    return SlotState(shown.memory, shown.trouble, moved)


def empty(
    offered: Collection[str], present: Sequence[Card], *, taken: Collection[str], moved: bool
) -> SlotState:
    """Return the state of a slot without a card.

    `offered`: the ids of the cards that kubelet offers. While they are unknown (empty), the slot
    may get any card of the driver. `taken`: the cards of other slots.
    """
    ids = sorted(offered) or [card.uuid for card in present]
    free = [_card(device, present) for device in ids if device not in taken]
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
    by_uuid = {card.uuid: card for card in present}
    return by_uuid.get(uuid, Card(device, 0, NOT_SHOWN))
