"""The slots of a node: each shared card of it is one, with a resource of a hundred units.

The pod that reserves a card for kfext, natively, is named after the node and the slot, so that two
controllers, or one that has forgotten, make the same pod.
"""

import hashlib
from collections.abc import Iterable

from kfext.model.quantity import Resources
from kfext.names import DOMAIN

UNITS = 100
"""A sharer gets a hundredth of the card's time for each."""
_PREFIX = f"{DOMAIN}/gpu-"
MOST_SLOTS = 64
"""No node has more cards."""


def resource_of(slot: int) -> str:
    """Return the extended resource of a slot, of which a sharer requests its units."""
    return f"{_PREFIX}{slot}"


def slot_of(resource: str) -> int | None:
    """Return the slot of an extended resource, None if it is another resource."""
    number = resource.removeprefix(_PREFIX)
    return None if number == resource else slot_in(number)


def slot_in(written: str) -> int | None:
    """Return the slot that a text names by its number, None if it names none."""
    if not written.isdecimal() or len(written) > 2 or str(int(written)) != written:
        return None
    return int(written) if int(written) < MOST_SLOTS else None


def has_part(requests: Iterable[str]) -> bool:
    """Return whether time of a slot is among the resources that a pod requests."""
    return any(slot_of(name) is not None for name in requests)


def parts_in(requests: Resources) -> dict[int, int]:
    """Return the units that a pod requests, by slot."""
    return {slot: n for name, n in requests.items() if (slot := slot_of(name)) is not None}


def without_parts(requests: Resources) -> dict[str, int]:
    """Return what a pod requests beside time of slots."""
    return {name: n for name, n in requests.items() if slot_of(name) is None}


def reservation_of(node: str, slot: int) -> str:
    """Return the name of the pod that holds the card of a slot."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:10]
    return f"gpu-{slot}-{digest}"


def units_of(slot: int) -> list[str]:
    """Return the ids of the units of a slot."""
    return [f"{slot}-{unit:02d}" for unit in range(UNITS)]


def folder_of(units: Iterable[str]) -> str:
    """Return the name of what belongs to the container that has these units: no other has any."""
    return min(units)
