"""Which cards of a node can take a replica that shares a GPU, and which of them it gets.

A card that may be shared is a slot of its node. The ledger counts what sharers take of it like
everything else, as resources of the node: the hundredths of its time, which Kubernetes counts too,
and resources that only kfext knows. A slot becomes a card when a GPU of the node is reserved for
it, so the free slots of a node are worth as much as the node has GPUs left.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.fit import Mask
from kfext.model.gpu import MOST_SLOTS, UNITS, CardNeed, CardsFor, counted, resource_of
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU

CONTEXT = 500
"""MiB of a card that a process takes before its first tensor."""
_RESERVE = 0.03, 512
"""What sharers leave of a card's memory: this part of it, and at least this many MiB."""
_PERMILLE = 1000
_OWN = "card "
"""The prefix of resources that only kfext knows; resources of Kubernetes have no spaces."""


def lines_of(slot: int) -> tuple[str, ...]:
    """Return the resources of a slot, in the order of `Cards.free`.

    These are its time in hundredths, as in Kubernetes; its memory in MiB, without sharers that
    stated no memory; the hundredths of those sharers; sharers of high priority; the thousandths of
    time beside them; whether the slot is reserved.
    """
    card = f"{_OWN}{slot}"
    unsized, high, idle = f"{card} unsized", f"{card} high", f"{card} idle"
    return resource_of(slot), f"{card} memory", unsized, high, idle, f"{card} reserved"


def is_of_card(resource: str) -> bool:
    """Return whether a resource belongs to a card, so that only kfext knows it."""
    return resource.startswith(_OWN)


TIME, MEMORY, UNSIZED, HIGH, IDLE, RESERVED = range(len(lines_of(0)))
"""The position of each resource in `lines_of`."""


def capacity(slot: int, *, memory: int) -> Resources:
    """Return what a card with `memory` MiB has beside its time."""
    part, least = _RESERVE
    usable = memory - max(int(memory * part), least)
    _, *names = lines_of(slot)
    return dict(zip(names, (max(usable, 0), UNITS, 1, _PERMILLE, 1), strict=True))


def taken_by(need: CardNeed, slot: int, *, busy: int = _PERMILLE) -> Resources:
    """Return what a replica takes of a slot.

    `busy`: the thousandths of time in which a replica of high priority keeps the card busy.
    """
    time, memory, unsized, high, idle, _ = lines_of(slot)
    taken = {time: need.units, idle: busy if need.high else need.idle}
    if need.memory is None:
        taken[unsized] = need.units
    else:
        taken[memory] = need.memory + CONTEXT
    return {name: number for name, number in {**taken, high: int(need.high)}.items() if number}


def kept_for(need: CardNeed, slot: int) -> Resources:
    """Return what is kept of a slot for a waiting replica, so that it can be placed there.

    A sharer of high priority that came before a waiting sharer of low priority might leave it too
    little.
    """
    guard = {lines_of(slot)[HIGH]: 1} if need.idle else {}
    return {**taken_by(need, slot), **guard}


def taken_by_reservation(slot: int) -> Resources:
    """Return what the pod takes that reserves a GPU for a slot."""
    return {NATIVE_GPU: 1, lines_of(slot)[RESERVED]: 1}


def slots_among(resources: Collection[str]) -> int:
    """Return the largest number of slots on nodes that have these resources."""
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
    """Return whether these requests are of the sharer of high priority in a slot."""
    return lines_of(slot)[HIGH] in requests


_SIZES = (UNITS, UNITS // 2, UNITS // 4)
"""What other jobs may ask of a card, each size equally likely."""
_USELESS = np.array(
    [sum(left for size in _SIZES if left < size) / len(_SIZES) for left in range(UNITS + 1)]
)
"""For each free amount of a card, how much of it is useless to other jobs on average.

This is the fragmentation of "Beware of Fragmentation" (Q. Weng et al., USENIX ATC 2023)."""

Read = Callable[[Sequence[str]], Amounts]
"""Names of resources -> their amounts on each row, shape (resources, rows)."""


def with_cards(
    amounts: Amounts, resources: Collection[str], cards: Callable[[], "Cards"]
) -> Amounts:
    """Return amounts, shape (resources, rows), with the counts of the resources that are cards."""
    wanted = {line: of for line, name in enumerate(resources) if (of := counted(name))}
    if wanted:
        found = cards()
        for line, of in wanted.items():
            amounts[line] = found.count(of)
    return amounts


class Cards:
    """The slots of all rows of a ledger, at one moment.

    `slots`: the largest number of slots of a node. `free` and `allocatable` read amounts of the
        ledger.
    """

    def __init__(self, slots: int, *, free: Read, allocatable: Read) -> None:
        names = [lines_of(slot) for slot in range(slots)]
        self._native: Amounts = np.maximum(free([NATIVE_GPU])[0], 0)
        rows = len(self._native)
        found = free([name for of_slot in names for name in of_slot])
        # By resource, slot and row.
        self._free: Amounts = found.reshape(slots, len(lines_of(0)), rows).swapaxes(0, 1)
        self._memory: Amounts = allocatable([of_slot[MEMORY] for of_slot in names])
        self._reserved: Mask = self._free[RESERVED] <= 0

    def count(self, of: CardsFor) -> Amounts:
        """Return on how many cards of each row a need can be met, shape (rows,)."""
        meets = self._meets(of.need)
        count: Amounts = (meets & self._reserved).sum(axis=0)
        spare: Amounts = (meets & ~self._reserved).sum(axis=0)
        count += self._native if of.whole else np.minimum(spare, self._native)
        return count

    def is_reserved(self, row: int, slot: int) -> bool:
        """Return whether a GPU is reserved for a slot of a row."""
        return bool(self._reserved[slot, row])

    def harm(self, need: CardNeed) -> NDArray[np.float64]:
        """Return how much more of a row becomes useless to other jobs if it takes a replica.

        The amount is in hundredths of a card, on the card where it is least; infinite without such
        a card.
        """
        possible = self._meets(need) & (self._reserved | (self._native > 0))
        harm = np.where(possible, self._harm(need), np.inf)
        least: NDArray[np.float64] = harm.min(axis=0, initial=np.inf)
        return least

    def choose(self, row: int, needs: Sequence[CardNeed], *, whole: int = 0) -> list[int] | None:
        """Return the slot for each of some replicas of one job on a row, no two on one card.

        `whole`: the number of GPUs of the row that other replicas of the job take for themselves.
            The result is None if there are not enough cards. The least harmful slot comes first,
            then the fullest, then the lowest.
        """
        new = max(int(self._native[row]) - whole, 0)
        reserved = self._reserved[:, row]
        options = []
        for need in needs:
            meets, harm = self._meets(need)[:, row], self._harm(need)[:, row]
            usable = [*np.flatnonzero(meets & reserved), *np.flatnonzero(meets & ~reserved)[:new]]
            order = np.lexsort((usable, self._free[TIME, usable, row], harm[usable]))
            options.append([int(usable[number]) for number in order])
        chosen = _matched(options)
        if chosen is None or np.count_nonzero(~reserved[chosen]) > new:
            return None
        return chosen

    def _meets(self, need: CardNeed) -> Mask:
        """Return on which cards a need can be met, by slot and row."""
        time, memory, unsized, high, idle, _ = self._free
        meets: Mask = time >= need.units
        # Sharers without a stated memory have the same part of the memory as of the time.
        left = memory * UNITS - self._memory * (UNITS - unsized)
        if need.memory is None:
            meets = meets & (left >= self._memory * need.units) & (self._memory > 0)
        else:
            meets = meets & (left >= (need.memory + CONTEXT) * UNITS)
        if need.high:
            meets = meets & (high > 0)
        elif need.idle:
            meets = meets & ((high > 0) | (idle >= need.idle))
        if need.slot is not None:
            meets = meets & (np.arange(len(time)) == need.slot)[:, None]
        return meets

    def _harm(self, need: CardNeed) -> NDArray[np.float64]:
        left = np.clip(self._free[TIME], 0, UNITS)
        after = np.clip(left - need.units, 0, UNITS)
        harm: NDArray[np.float64] = _USELESS[after] - _USELESS[left]
        return harm


def _matched(options: Sequence[Sequence[int]]) -> list[int] | None:
    """Return a different option for each list, the best first, None if there is no such choice.

    Source: H. Kuhn, "The Hungarian method for the assignment problem" (1955), without costs.
    """
    owner: dict[int, int] = {}

    def found(number: int, tried: set[int]) -> bool:
        untried = [option for option in options[number] if option not in tried]
        for option in sorted(untried, key=owner.__contains__):  # the free ones first
            if option in tried:
                continue
            tried.add(option)
            if option not in owner or found(owner[option], tried):
                owner[option] = number
                return True
        return False

    for number in sorted(range(len(options)), key=lambda number: len(options[number])):
        if not found(number, set()):
            return None
    return [slot for _, slot in sorted((number, slot) for slot, number in owner.items())]
