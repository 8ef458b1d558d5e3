"""Which cards of a node can take a replica that shares a GPU, and which of them it gets.

A card that may be shared is a slot of its node. The ledger counts what its sharers take as it
counts everything else, as resources of the node: the hundredths of its time, which Kubernetes
counts too, and some that only kfext knows. A slot becomes a card when a GPU of the node is reserved
for it, so the free slots of a node are worth as much as it has GPUs left.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.eligible import Mask
from kfext.core.ledger.parts import CONTEXT, MEMORY, RESERVED, TIME, lines_of
from kfext.model.gpu_share import CardNeed, CardsFor, counted
from kfext.model.gpu_slots import UNITS
from kfext.names import NATIVE_GPU

_SIZES = (UNITS, UNITS // 2, UNITS // 4)
"""What others may ask of a card: as nothing is known of them, each as likely as the others."""
_USELESS = np.array(
    [sum(left for size in _SIZES if left < size) / len(_SIZES) for left in range(UNITS + 1)]
)
"""By what is left of a card, how much of that is useless to them on average: its fragmentation as
in "Beware of Fragmentation" (Q. Weng et al., USENIX ATC 2023)."""

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

    `slots`: how many a node has at most. `free` and `allocatable` read amounts of the ledger.
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
        """Return how much more of a row becomes useless to others if it takes a replica.

        It is in hundredths of a card, on the card where it is least; infinite without such a card.
        """
        possible = self._meets(need) & (self._reserved | (self._native > 0))
        harm = np.where(possible, self._harm(need), np.inf)
        least: NDArray[np.float64] = harm.min(axis=0, initial=np.inf)
        return least

    def choose(self, row: int, needs: Sequence[CardNeed], *, whole: int = 0) -> list[int] | None:
        """Return the slot for each of some replicas of one job on a row, no two on one card.

        `whole`: how many GPUs of the row others of the job take for themselves. None if it cannot
        be done. The least harmful slot is taken, then the one that is filled most, then the first.
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
        # What the sharers without a stated memory have is a part of all of it, as their time is.
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
    """Return a different one for each from its options, the best first; None if that cannot be.

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
