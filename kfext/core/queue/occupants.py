"""What training jobs hold on some nodes, which of them must end for a gang, and what is kept.

What a job holds comes free when the job ends. The GPU of a slot comes free when the last job with a
part of it has ended, because the pod that reserves the GPU is deleted then.

Later jobs must leave free on a node what the waiting gang will take, less what the jobs that it
waits for will free.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.cards import Cards, kept_for, lines_of, slots_in
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.columns import LARGEST, Amounts
from kfext.core.ledger.ledger import Ledger
from kfext.model.gang_terms import Exclusive
from kfext.model.gpu import COUNTS, UNITS, CardNeed, Place, counted, resource_of
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU

Row = NDArray[np.int64]
"""Amounts on one node, in the order of `Occupants.names`."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a gang takes of one node.

    `amounts`: of each resource, whole GPUs among them; none is 0.
    `cards`: what each of its replicas there that shares a GPU needs of one.
    """

    amounts: Resources
    cards: tuple[CardNeed, ...] = ()

    @property
    def gpus(self) -> int:
        """The number of GPUs that are not shared."""
        return self.amounts.get(NATIVE_GPU, 0)

    @property
    def parts(self) -> int:
        """The hundredths of GPUs, whole GPUs included."""
        return UNITS * self.gpus + sum(card.units for card in self.cards)


def need_of(resources: Iterable[str], amounts: Iterable[int]) -> Need:
    """Return the need that amounts of resources state; some resources are counts of cards."""
    own, cards = {}, []
    for name, number in zip(resources, map(int, amounts), strict=True):
        of = counted(name) if name.startswith(COUNTS) else None
        if of is None and number > 0:
            own[name] = number
        elif of is not None and not of.whole:
            cards += [of.need] * number
    return Need(own, tuple(cards))


class Occupants:
    """What is free on some nodes. `leave` and `stay` register which jobs have ended.

    `needs`: what a gang needs of each node. `exclusive`: the ports and terms that no other pod may
        have there. `ignoring`: claims that do not count.

    `takers`: the jobs that have any of the exclusive ports and terms.
    `held`: what each job holds on each of the nodes.
    `free`: what is free there as it is. `now`: what is free there without the jobs that left.
    `freed`: what the jobs that left held, without the GPUs of slots.
    """

    def __init__(
        self,
        needs: Mapping[str, Need],
        ledger: Ledger,
        *,
        exclusive: Collection[Exclusive] = (),
        ignoring: Collection[Hashable] = (),
    ) -> None:
        own = dict.fromkeys(name for need in needs.values() for name in need.amounts)
        cards = NATIVE_GPU in own or any(need.cards for need in needs.values())
        self._slots = ledger.slots if cards else 0
        lines = (line for slot in range(self._slots) for line in lines_of(slot))
        names = tuple(dict.fromkeys((*own, *([NATIVE_GPU] if self._slots else []), *lines)))
        self._at = {name: number for number, name in enumerate(names)}
        rows = {node: row for node in needs if (row := ledger.row(node)) is not None}
        free, there = ledger.free(names, ignoring=ignoring), ledger.allocatable(names)
        self.free: Mapping[str, Row] = {node: free[:, row] for node, row in rows.items()}
        self.now: Mapping[str, Row] = {node: of.copy() for node, of in self.free.items()}
        self.freed: Mapping[str, Row] = {node: 0 * of for node, of in self.free.items()}
        self.takers: set[str] = set()
        self.held: dict[str, dict[str, Row]] = {}
        self._there = {node: there[:, row] for node, row in rows.items()}
        self._gpus: dict[Place, Row] = {}
        self._sharers: dict[Place, set[str]] = {}
        self._places: dict[str, set[Place]] = {}
        for claim in ledger.claims_on(rows, ignoring=ignoring):
            self._note(claim)
            if claim.job and not set(exclusive).isdisjoint(claim.exclusive):
                self.takers.add(claim.job)
        for place in self._gpus:
            self._sharers.setdefault(place, set())
            self._note_gpu(place, +1)  # a GPU without sharers is about to be given back

    def leave(self, uid: str) -> None:
        """Register that a job has ended."""
        self._change(uid, +1)
        for place in self._places.get(uid, ()):
            self._sharers[place].discard(uid)
            self._note_gpu(place, +1)

    def stay(self, uid: str) -> None:
        """Register that a job which left has not ended after all."""
        for place in self._places.get(uid, ()):
            self._note_gpu(place, -1)
            self._sharers[place].add(uid)
        self._change(uid, -1)

    def amount(self, of: Row, name: str) -> int:
        """Return the amount of a resource, 0 if it does not matter here."""
        at = self._at.get(name)
        return 0 if at is None else int(of[at])

    def size(self, uid: str, gang: Need) -> float:
        """Return how much a job holds on the nodes, in sizes of a gang.

        Whole GPUs and parts of GPUs count together.
        """
        size = 0.0
        for held in self.held[uid].values():
            for name, number in gang.amounts.items():
                size += self.amount(held, name) / number if name != NATIVE_GPU else 0.0
            size += self._parts_of(held) / gang.parts if gang.parts else 0.0
        return round(size, 9)

    def holds(self, node: str, need: Need, *, already: bool = False) -> bool:
        """Return whether a node has what a gang needs of it now; `already`: as it is."""
        amounts = (self.free if already else self.now).get(node)
        if amounts is None or any(amounts[self._at[name]] < n for name, n in need.amounts.items()):
            return False
        return self._slots_for(node, amounts, need) is not None

    def helps(self, uid: str, node: str, need: Need) -> bool:
        """Return whether the end of a job frees any of what a node still lacks."""
        held = self.held[uid].get(node)
        if held is None or self.holds(node, need):
            return False
        now = self.now[node]
        short = [name for name, n in need.amounts.items() if now[self._at[name]] < n]
        if any(held[self._at[name]] > 0 for name in short):
            return True
        has_part = any(place[0] == node for place in self._places.get(uid, ()))
        if NATIVE_GPU in short:
            return has_part
        return not short and (has_part or self.amount(held, NATIVE_GPU) > 0)

    def slots_for(self, node: str, need: Need) -> list[int]:
        """Return the slots of a node that a gang would get now, empty if it does not fit."""
        return self._slots_for(node, self.now[node], need) or []

    def is_reserved(self, node: str, slot: int) -> bool:
        """Return whether a GPU is reserved for a slot, as it is."""
        return self._cards(node, self.free[node]).is_reserved(0, slot)

    def emptied(self, node: str) -> list[int]:
        """Return the slots of a node with a GPU that comes free, since no job has a part of it."""
        reserved = (slot for slot in range(self._slots) if (node, slot) in self._gpus)
        return [slot for slot in reserved if not self._sharers[node, slot]]

    def _parts_of(self, amounts: Row) -> int:
        shared = (self.amount(amounts, resource_of(slot)) for slot in range(self._slots))
        return UNITS * self.amount(amounts, NATIVE_GPU) + sum(shared)

    def _slots_for(self, node: str, amounts: Row, need: Need) -> list[int] | None:
        if not (self._slots and need.cards):
            return None if need.cards else []
        return self._cards(node, amounts).choose(0, need.cards, whole=need.gpus)

    def _cards(self, node: str, amounts: Row) -> Cards:
        """Return the cards of a node, which is row 0, by such amounts."""
        return Cards(
            self._slots,
            free=lambda names: self._read(amounts, names),
            allocatable=lambda names: self._read(self._there[node], names),
        )

    def _read(self, row: Row, names: Sequence[str]) -> Amounts:
        return row[[self._at[name] for name in names], None]

    def _note(self, claim: Claim) -> None:
        amounts = np.zeros(len(self._at), dtype=np.int64)
        for name, number in claim.requests.items():
            if (at := self._at.get(name)) is not None:
                amounts[at] = min(number, LARGEST)
        places = [(claim.node, slot) for slot in slots_in(claim.requests)] if self._slots else []
        if claim.reserves is not None and self._slots:
            before = self._gpus.get((claim.node, claim.reserves), np.zeros_like(amounts))
            self._gpus[claim.node, claim.reserves] = before + amounts
        for place in places:
            self._sharers.setdefault(place, set()).add(claim.job)
            self._places.setdefault(claim.job, set()).add(place)
        if claim.job:
            of = self.held.setdefault(claim.job, {})
            of[claim.node] = np.minimum(of.get(claim.node, 0) + amounts, LARGEST)

    def _change(self, uid: str, times: int) -> None:
        for node, amounts in self.held[uid].items():
            self.now[node][:] += times * amounts
            self.freed[node][:] += times * amounts

    def _note_gpu(self, place: Place, times: int) -> None:
        if place in self._gpus and not self._sharers[place]:
            self.now[place[0]][:] += times * self._gpus[place]


Ends = Mapping[str, float]
"""The latest end of running jobs by uid, in epoch seconds; jobs with an unknown end are absent."""


def leavers(on: Occupants, needs: Mapping[str, Need], *, total: Need, ends: Ends) -> list[str]:
    """Let jobs leave until a gang fits, and return them: known ends first, else the smallest.

    `needs` is what a gang takes of each node, `total` what it takes of all.

    All jobs must end that have what is exclusive to the gang.

    The smallest jobs free hardly more than what is missing. Later jobs may use what is freed beyond
    it, and a long series of later jobs must not starve the waiting job.
    """
    sizes = {uid: on.size(uid, total) for uid in on.held}
    chosen: list[str] = []
    for uid in sorted(on.held, key=lambda uid: (ends.get(uid, math.inf), sizes[uid], uid)):
        if uid in on.takers or any(on.helps(uid, node, needs[node]) for node in on.held[uid]):
            chosen.append(uid)
            on.leave(uid)
    if not all(on.holds(node, need) for node, need in needs.items()):
        return chosen
    for uid in sorted(set(chosen).difference(on.takers), key=lambda uid: (-sizes[uid], uid)):
        on.stay(uid)
        if all(on.holds(node, needs[node]) for node in on.held[uid]):
            chosen.remove(uid)
        else:
            on.leave(uid)
    return chosen


def kept_of(on: Occupants, node: str, need: Need) -> Resources:
    """Return what is kept of a node for a gang; call it after the jobs that it waits for have left.

    The GPU of a slot is freed only if no job joins the jobs with parts of it, so the rest of its
    time is kept too.
    """
    freed = on.freed.get(node)
    if freed is None:
        return need.amounts
    kept = {**need.amounts, **dict(_of_slots(on, node, need))}
    return {
        name: left for name, number in kept.items() if (left := number - on.amount(freed, name)) > 0
    }


def _of_slots(on: Occupants, node: str, need: Need) -> Iterator[tuple[str, int]]:
    """Yield the need of slots, and of GPUs beyond the GPUs that slots give back."""
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
