"""What is counted of a slot: the names of its resources, what a card has and what sharers take."""

from collections.abc import Collection

from kfext.model.gpu_share import CardNeed
from kfext.model.gpu_slots import MOST_SLOTS, UNITS, resource_of
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU

CONTEXT = 500
"""MiB of a card that a process takes before its first tensor."""
_RESERVE = 0.03, 512
"""What is left of a card's memory: this part of it, and at least so many MiB."""
_PERMILLE = 1000
_OWN = "card "
"""Begins the names of the resources that only kfext knows; those of Kubernetes have no spaces."""


def lines_of(slot: int) -> tuple[str, ...]:
    """Return the resources of a slot, in the order of `Cards.free`.

    Its time in hundredths, as in Kubernetes; its memory in MiB, that of sharers which stated none
    not counted; the hundredths of these; sharers of high priority; the thousandths of its time
    beside them; whether it is reserved.
    """
    card = f"{_OWN}{slot}"
    unsized, high, idle = f"{card} unsized", f"{card} high", f"{card} idle"
    return resource_of(slot), f"{card} memory", unsized, high, idle, f"{card} reserved"


def is_of_card(resource: str) -> bool:
    """Return whether only kfext knows a resource, as it is of a card."""
    return resource.startswith(_OWN)


TIME, MEMORY, UNSIZED, HIGH, IDLE, RESERVED = range(len(lines_of(0)))
"""The place of each in these."""


def capacity(slot: int, *, memory: int) -> Resources:
    """Return what a card with so many MiB of memory has beside its time."""
    part, least = _RESERVE
    usable = memory - max(int(memory * part), least)
    _, *names = lines_of(slot)
    return dict(zip(names, (max(usable, 0), UNITS, 1, _PERMILLE, 1), strict=True))


def taken_by(need: CardNeed, slot: int, *, busy: int = _PERMILLE) -> Resources:
    """Return what a replica takes of a slot.

    `busy`: in how many thousandths of its time the card is busy with it, if it has high priority.
    """
    time, memory, unsized, high, idle, _ = lines_of(slot)
    taken = {time: need.units, idle: busy if need.high else need.idle}
    if need.memory is None:
        taken[unsized] = need.units
    else:
        taken[memory] = need.memory + CONTEXT
    return {name: number for name, number in {**taken, high: int(need.high)}.items() if number}


def kept_for(need: CardNeed, slot: int) -> Resources:
    """Return what is kept of a slot for a replica that waits, so that it can be placed there.

    A sharer of high priority that came before one of low might leave it too little.
    """
    guard = {lines_of(slot)[HIGH]: 1} if need.idle else {}
    return {**taken_by(need, slot), **guard}


def taken_by_reservation(slot: int) -> Resources:
    """Return what the pod takes that reserves a GPU for a slot."""
    return {NATIVE_GPU: 1, lines_of(slot)[RESERVED]: 1}


def slots_among(resources: Collection[str]) -> int:
    """Return how many slots the nodes have at most that have these resources."""
    slots = (slot for slot in range(MOST_SLOTS) if resource_of(slot) in resources)
    return max(slots, default=-1) + 1


_SLOT_OF = {
    line: slot
    for slot in range(MOST_SLOTS)
    for line in lines_of(slot)
    if line != lines_of(slot)[RESERVED]
}


def slots_in(requests: Resources) -> set[int]:
    """Return the slots of which these requests take a part."""
    return {_SLOT_OF[name] for name in requests.keys() & _SLOT_OF.keys()}


def has_priority(requests: Resources, slot: int) -> bool:
    """Return whether these requests are those of the sharer of high priority in a slot."""
    return lines_of(slot)[HIGH] in requests
