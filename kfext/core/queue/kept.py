"""What later jobs must leave free on a node for a gang that waits: no less than it will need.

That is what it will take, less what the jobs it waits for will free. The GPU of a slot is freed
only if nobody joins those that have parts of it, so the rest of its time is kept too.
"""

from collections.abc import Iterator

from kfext.core.ledger.cards import kept_for
from kfext.core.queue.occupants import Need, Occupants
from kfext.model.gpu_slots import UNITS, resource_of
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU


def kept_of(on: Occupants, node: str, need: Need) -> Resources:
    """Return what is kept of a node for a gang; the jobs that it waits for have left."""
    freed = on.freed.get(node)
    if freed is None:
        return need.amounts
    kept = {**need.amounts, **dict(_of_slots(on, node, need))}
    return {
        name: left for name, number in kept.items() if (left := number - on.amount(freed, name)) > 0
    }


def _of_slots(on: Occupants, node: str, need: Need) -> Iterator[tuple[str, int]]:
    """Yield what is needed of slots, and how many GPUs beside those that come free with slots."""
    own, emptied = on.slots_for(node, need), on.emptied(node)
    for card, slot in zip(need.cards, own, strict=False):
        yield from kept_for(card, slot).items()
    new = sum(not on.is_reserved(node, slot) for slot in own)
    gpus = need.gpus + new
    if not gpus:
        return
    spare = [slot for slot in emptied if slot not in own]
    there = max(on.amount(on.free[node], NATIVE_GPU), 0) + on.amount(on.freed[node], NATIVE_GPU)
    given_back = spare[: max(gpus - there, 0)]
    for slot in given_back:
        yield resource_of(slot), UNITS
    yield NATIVE_GPU, gpus - len(given_back)
