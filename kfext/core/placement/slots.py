"""Which slot of its node each replica gets that shares a GPU."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from kfext.core.ledger.cards import kept_for
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member
from kfext.model.gpu import Place, uncounted
from kfext.model.plan import NO_SLOTS, Assignment, Slots
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU


@dataclass(frozen=True, slots=True)
class Places:
    """The node of each member of a gang, and the slots of the members that share GPUs."""

    nodes: Assignment
    slots: Slots


def slots_for(
    members: Sequence[Member],
    assignment: Assignment,
    ledger: Ledger,
    *,
    closed: Collection[Place] = (),
    ignoring: Collection[Hashable] = (),
) -> Slots | None:
    """Return the slots of the members that share GPUs, None if their nodes have too few.

    No `closed` slot is used. `ignoring` are claims of the members themselves.
    """
    if not any(member.card for member in members):
        return NO_SLOTS
    on: dict[str, list[Member]] = {}
    for member in members:
        on.setdefault(assignment[member.key], []).append(member)
    slots, cards = {}, ledger.closing(closed).cards(ignoring=ignoring)
    for node, present in on.items():
        sharing = [(member.key, member.card) for member in present if member.card is not None]
        row = ledger.row(node)
        if row is None or not sharing:
            continue
        whole = sum(member.requests.get(NATIVE_GPU, 0) for member in present)
        chosen = cards.choose(row, [need for _, need in sharing], whole=whole)
        if chosen is None:
            return None
        slots.update({key: slot for (key, _), slot in zip(sharing, chosen, strict=True)})
    return slots


def doubled(members: Sequence[Member], assignment: Assignment) -> Place | None:
    """Return a slot of a node that two members would have, because both have their slots already.

    The search counts the needs of each size separately, as a gang has no slots yet when it is
    placed. Later, pods with equal slot numbers may be sent to one node.
    """
    taken = set()
    for member in members:
        if member.key in assignment and member.card is not None and member.card.slot is not None:
            place = (assignment[member.key], member.card.slot)
            if place in taken:
                return place
            taken.add(place)
    return None


def kept_requests(member: Member, slot: int | None) -> Resources:
    """Return what is kept of a node for a waiting member that is to be in a slot of it."""
    if member.card is None or slot is None:
        return member.requests
    return {**uncounted(member.requests), **kept_for(member.card, slot)}
