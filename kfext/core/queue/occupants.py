"""The capacity that training jobs occupy on some nodes, and the jobs that must end for a gang.

A job frees its capacity when it ends. The GPU of a slot is freed when the last job with a share of
it has ended, because the pod that reserves the GPU is deleted then.

On each node the need of the waiting gang is reserved, less the capacity that the awaited jobs will
free there.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.cards import Cards, kept_for, slot_resources, slots_in
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.columns import LARGEST, Amounts
from kfext.core.ledger.ledger import Ledger
from kfext.model.gang_terms import Exclusive
from kfext.model.gpu import COUNTS, UNITS, CardNeed, Place, cards_counted_by, resource_of
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU

Row = NDArray[np.int64]
"""The amounts on one node of the resources that an `Occupants` counts."""


@dataclass(frozen=True, slots=True)
class Need:
    """The need of a gang on one node.

    `amounts`: the positive amount of each resource, including whole GPUs.
    `cards`: the need of each replica there that shares a GPU.
    """

    amounts: Resources
    cards: tuple[CardNeed, ...] = ()

    @property
    def gpus(self) -> int:
        """The number of GPUs that are not shared."""
        return self.amounts.get(NATIVE_GPU, 0)

    @property
    def gpu_units(self) -> int:
        """The hundredths of GPUs, whole GPUs included."""
        return UNITS * self.gpus + sum(card.units for card in self.cards)


def need_of(resources: Iterable[str], amounts: Iterable[int]) -> Need:
    """Return the need for these amounts of resources; some resources may count cards."""
    plain, cards = {}, []
    for name, number in zip(resources, map(int, amounts), strict=True):
        count = cards_counted_by(name) if name.startswith(COUNTS) else None
        if count is None and number > 0:
            plain[name] = number
        elif count is not None and not count.whole:
            cards += [count.need] * number
    return Need(plain, tuple(cards))


class Occupants:
    """The free capacity of some nodes, while jobs are assumed to end (`leave`) or not (`stay`).

    `needs`: the need of a gang on each node.
    `exclusive`: the ports and terms that no other pod may have there.
    `ignoring`: claims that count as free.

    `takers`: the jobs that have any of the exclusive ports and terms.
    `held`: the amounts that each job occupies, by its uid and by node.
    `free`: the free amounts of each node while all jobs are there.
    `after`: the free amounts of each node after the end of the jobs that left.
    `freed`: the amounts of the jobs that left, by node, without the GPUs of slots.
    """

    def __init__(
        self,
        needs: Mapping[str, Need],
        ledger: Ledger,
        *,
        exclusive: Collection[Exclusive] = (),
        ignoring: Collection[Hashable] = (),
    ) -> None:
        needed = dict.fromkeys(name for need in needs.values() for name in need.amounts)
        cards = NATIVE_GPU in needed or any(need.cards for need in needs.values())
        self._slots = ledger.slots if cards else 0
        lines = (line for slot in range(self._slots) for line in slot_resources(slot))
        names = tuple(dict.fromkeys((*needed, *([NATIVE_GPU] if self._slots else []), *lines)))
        self._line = {name: number for number, name in enumerate(names)}
        rows = {node: row for node in needs if (row := ledger.row(node)) is not None}
        free, allocatable = ledger.free(names, ignoring=ignoring), ledger.allocatable(names)
        self.free: Mapping[str, Row] = {node: free[:, row] for node, row in rows.items()}
        self.after: Mapping[str, Row] = {node: row.copy() for node, row in self.free.items()}
        self.freed: Mapping[str, Row] = {node: 0 * row for node, row in self.free.items()}
        self.takers: set[str] = set()
        self.held: dict[str, dict[str, Row]] = {}
        self._allocatable = {node: allocatable[:, row] for node, row in rows.items()}
        self._gpus: dict[Place, Row] = {}  # the amounts of reservation pods
        self._sharers: dict[Place, set[str]] = {}  # the uids of jobs
        self._places: dict[str, set[Place]] = {}  # by the uid of a job
        for claim in ledger.claims_on(rows, ignoring=ignoring):
            self._record(claim)
            if claim.job and not set(exclusive).isdisjoint(claim.exclusive):
                self.takers.add(claim.job)
        for place in self._gpus:
            self._sharers.setdefault(place, set())
            self._free_gpu(place, +1)  # a GPU without sharers will be freed soon

    def leave(self, uid: str) -> None:
        """Assume that a job has ended."""
        self._change(uid, +1)
        for place in self._places.get(uid, ()):
            self._sharers[place].discard(uid)
            self._free_gpu(place, +1)

    def stay(self, uid: str) -> None:
        """Revert `leave` for a job."""
        for place in self._places.get(uid, ()):
            self._free_gpu(place, -1)
            self._sharers[place].add(uid)
        self._change(uid, -1)

    def amount(self, row: Row, name: str) -> int:
        """Return the amount of a resource in a row; 0 for a resource that is not in the row."""
        index = self._line.get(name)
        return 0 if index is None else int(row[index])

    def size(self, uid: str, gang: Need) -> float:
        """Return the capacity that a job occupies on the nodes, as a multiple of a gang's need.

        The multiples of all resources are added; whole GPUs and GPU shares are one resource.
        """
        size = 0.0
        for held in self.held[uid].values():
            for name, number in gang.amounts.items():
                size += self.amount(held, name) / number if name != NATIVE_GPU else 0.0
            size += self._gpu_units(held) / gang.gpu_units if gang.gpu_units else 0.0
        return round(size, 9)

    def holds(self, node: str, need: Need, *, before: bool = False) -> bool:
        """Return whether a gang's need fits a node without the jobs that left.

        `before`: whether these jobs count as still there.
        """
        row = (self.free if before else self.after).get(node)
        if row is None or any(row[self._line[name]] < n for name, n in need.amounts.items()):
            return False
        return self._slots_for(node, row, need) is not None

    def helps(self, uid: str, node: str, need: Need) -> bool:
        """Return whether the end of a job frees capacity that a node still lacks."""
        held = self.held[uid].get(node)
        if held is None or self.holds(node, need):
            return False
        after = self.after[node]
        missing = [name for name, n in need.amounts.items() if after[self._line[name]] < n]
        if any(held[self._line[name]] > 0 for name in missing):
            return True
        has_share = any(place[0] == node for place in self._places.get(uid, ()))
        if NATIVE_GPU in missing:
            return has_share
        return not missing and (has_share or self.amount(held, NATIVE_GPU) > 0)

    def slots_for(self, node: str, need: Need) -> list[int]:
        """Return a gang's slots on a node without the jobs that left; empty if it does not fit."""
        return self._slots_for(node, self.after[node], need) or []

    def is_reserved(self, node: str, slot: int) -> bool:
        """Return whether a GPU is reserved for a slot while all jobs are there."""
        return self._cards(node, self.free[node]).is_reserved(0, slot)

    def emptied(self, node: str) -> list[int]:
        """Return the slots of a node with a GPU that will be freed: no job has a share of it."""
        reserved = (slot for slot in range(self._slots) if (node, slot) in self._gpus)
        return [slot for slot in reserved if not self._sharers[node, slot]]

    def _gpu_units(self, amounts: Row) -> int:
        shared = (self.amount(amounts, resource_of(slot)) for slot in range(self._slots))
        return UNITS * self.amount(amounts, NATIVE_GPU) + sum(shared)

    def _slots_for(self, node: str, amounts: Row, need: Need) -> list[int] | None:
        if not (self._slots and need.cards):
            return None if need.cards else []
        return self._cards(node, amounts).choose(0, need.cards, whole=need.gpus)

    def _cards(self, node: str, amounts: Row) -> Cards:
        """Return the cards of a node, as row 0, with these amounts."""
        return Cards(
            self._slots,
            free=lambda names: self._read(amounts, names),
            allocatable=lambda names: self._read(self._allocatable[node], names),
        )

    def _read(self, row: Row, names: Sequence[str]) -> Amounts:
        return row[[self._line[name] for name in names], None]

    def _record(self, claim: Claim) -> None:
        amounts = np.zeros(len(self._line), dtype=np.int64)
        for name, number in claim.requests.items():
            if (index := self._line.get(name)) is not None:
                amounts[index] = min(number, LARGEST)
        places = [(claim.node, slot) for slot in slots_in(claim.requests)] if self._slots else []
        if claim.reserves is not None and self._slots:
            before = self._gpus.get((claim.node, claim.reserves), np.zeros_like(amounts))
            self._gpus[claim.node, claim.reserves] = before + amounts
        for place in places:
            self._sharers.setdefault(place, set()).add(claim.job)
            self._places.setdefault(claim.job, set()).add(place)
        if claim.job:
            held = self.held.setdefault(claim.job, {})
            held[claim.node] = np.minimum(held.get(claim.node, 0) + amounts, LARGEST)

    def _change(self, uid: str, times: int) -> None:
        for node, amounts in self.held[uid].items():
            self.after[node][:] += times * amounts
            self.freed[node][:] += times * amounts

    def _free_gpu(self, place: Place, times: int) -> None:
        if place in self._gpus and not self._sharers[place]:
            self.after[place[0]][:] += times * self._gpus[place]


Ends = Mapping[str, float]
"""The latest end of running jobs by uid, in epoch seconds; jobs with an unknown end are absent."""


def leavers(
    occupants: Occupants, needs: Mapping[str, Need], *, total: Need, ends: Ends
) -> list[str]:
    """Let jobs leave `occupants` until a gang fits, and return their uids.

    Jobs with the earliest known ends come first, then the smallest jobs.
    `needs`: the need of the gang on each node.
    `total`: the sum of the needs.

    All jobs with exclusive ports or terms of the gang must end. Among the others the smallest jobs
    are chosen, because they free little more than the missing capacity: later jobs may use any
    surplus, and a long series of later jobs must not starve the waiting job.
    """
    sizes = {uid: occupants.size(uid, total) for uid in occupants.held}
    chosen: list[str] = []
    for uid in sorted(occupants.held, key=lambda uid: (ends.get(uid, math.inf), sizes[uid], uid)):
        if uid in occupants.takers or any(
            occupants.helps(uid, node, needs[node]) for node in occupants.held[uid]
        ):
            chosen.append(uid)
            occupants.leave(uid)
    if not all(occupants.holds(node, need) for node, need in needs.items()):
        return chosen
    for uid in sorted(set(chosen).difference(occupants.takers), key=lambda uid: (-sizes[uid], uid)):
        occupants.stay(uid)
        if all(occupants.holds(node, needs[node]) for node in occupants.held[uid]):
            chosen.remove(uid)
        else:
            occupants.leave(uid)
    return chosen


def amounts_to_reserve(occupants: Occupants, node: str, need: Need) -> Resources:
    """Return the amounts of a node to reserve for a gang, once the awaited jobs left `occupants`.

    The GPU of a slot is freed only if no other job joins its sharers, so its free time is reserved
    too.
    """
    freed = occupants.freed.get(node)
    if freed is None:
        return need.amounts
    wanted = {**need.amounts, **dict(_of_slots(occupants, node, need))}
    missing = {name: number - occupants.amount(freed, name) for name, number in wanted.items()}
    return {name: number for name, number in missing.items() if number > 0}


def _of_slots(occupants: Occupants, node: str, need: Need) -> Iterator[tuple[str, int]]:
    """Yield the amounts to reserve of the gang's slots, and of GPUs that no emptied slot frees."""
    slots, emptied = occupants.slots_for(node, need), occupants.emptied(node)
    for card, slot in zip(need.cards, slots, strict=False):
        yield from kept_for(card, slot).items()
    new = sum(not occupants.is_reserved(node, slot) for slot in slots)
    gpus = need.gpus + new
    if not gpus:
        return
    spare = [slot for slot in emptied if slot not in slots]
    unused, freed = (
        occupants.amount(amounts[node], NATIVE_GPU) for amounts in (occupants.free, occupants.freed)
    )
    to_free = spare[: max(gpus - max(unused, 0) - freed, 0)]
    for slot in to_free:
        yield resource_of(slot), UNITS
    yield NATIVE_GPU, gpus - len(to_free)
