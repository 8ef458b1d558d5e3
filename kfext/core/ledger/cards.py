"""Jobs that share GPUs, as the solver sees them, and the cards that can serve their replicas.

A shareable card is a slot of its node. The ledger counts its use as resources of the node:
hundredths of its time, which Kubernetes counts too, and resources that only kfext knows. A slot
becomes a card when a GPU of the node is reserved for it, so a node can use as many free slots as it
has free GPUs.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.fit import Mask
from kfext.core.settings.resolve import share_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import HIGH
from kfext.model.gpu import (
    MAX_SLOTS,
    UNITS,
    CardNeed,
    CardsFor,
    GpuShare,
    cards_counted_by,
    has_slot_units,
    resource_of,
    without_card_counts,
    without_slot_units,
)
from kfext.model.job import TrainingJob
from kfext.model.plan import Plan
from kfext.model.quantity import Resources
from kfext.model.replica_group import ReplicaGroup
from kfext.names import ELASTIC, GPU_PRIORITY, NATIVE_GPU

CONTEXT = 500
"""MiB of a card that a process uses before its first tensor."""
_RESERVE = 0.03, 512
"""Sharers leave this fraction of a card's memory free, and at least this many MiB."""
_PERMILLE = 1000
_CARD_PREFIX = "card "
"""The prefix of the resources of a card that only kfext knows."""
_UNMEASURED: Mapping[str, int] = MappingProxyType({})


# --- jobs ---------------------------------------------------------------------------------------


def as_sharing(
    job: TrainingJob, plan: Plan | None, *, busy: Mapping[str, int] = _UNMEASURED
) -> TrainingJob:
    """Return a job with replicas that request shares of GPUs instead of whole GPUs.

    While the job runs under a plan, the shares of the plan count, because an edit of the job cannot
    change its pods. `busy`: the field of each type's share (see `GpuShare`), by lower-case type.
    """
    if job.released:
        return job
    running = plan is not None and not job.suspend
    shares = plan.shares if plan is not None and running else shares_by_type(share_of(job), job)
    if not shares:
        return job
    shares = {type_: replace(share, busy=busy.get(type_)) for type_, share in shares.items()}
    needs = {share.need for share in shares.values()}
    some_whole = any(
        NATIVE_GPU in group.requests for group in job.groups if group.type.lower() not in shares
    )
    groups = []
    for group in job.groups:
        share = shares.get(group.type.lower())
        need = share.need if share else None
        counts = _counts(group.requests, need, needs=needs, whole=some_whole)
        base = {name: n for name, n in group.requests.items() if not share or name != NATIVE_GPU}
        charge = group.charge.sharing(share.units) if share else group.charge
        groups.append(replace(group, requests={**base, **dict(counts)}, share=share, charge=charge))
    return replace(job, groups=tuple(groups))


def as_written(job: TrainingJob) -> TrainingJob:
    """Return the job as its templates state it: a replica with a share requests one GPU."""
    groups = []
    for group in job.groups:
        requests = without_card_counts(group.requests)
        if group.share:
            requests[NATIVE_GPU] = 1
        groups.append(replace(group, requests=requests, share=None))
    return replace(job, groups=tuple(groups))


def as_template(requests: Resources) -> Resources:
    """Return the requests of a pod as its template states them: one GPU instead of its share."""
    if not has_slot_units(requests):
        return requests
    return {**without_slot_units(requests), NATIVE_GPU: 1}


def why_unshareable(job: TrainingJob, settings: Settings) -> str:
    """Return the obstacle to the GPU shares that a job requests, or an empty string.

    Admission refuses such a job. A job that an edit makes unshareable stays in the queue, because
    its pods would use whole GPUs that the ledger does not count.
    """
    return "" if job.released else next(_obstacles(job, settings), "")


def _obstacles(job: TrainingJob, settings: Settings) -> Iterator[str]:
    if job.started_by:
        yield (
            f"{job.started_by} starts this job, and kfext shares the GPUs of jobs that it starts "
            f"itself"
        )
    if job.kind.rendered:
        yield (
            f"the templates of a {job.kind.name} are rendered after its admission, so kfext cannot "
            f"check that each pod asks for one GPU"
        )
    if settings.elastic is not None:
        yield f"the number of its replicas may change ({ELASTIC}); set it to off"
    with_gpus = [group for group in job.groups if group.replicas and _gpus(group)]
    with_single_gpu = [group for group in with_gpus if _gpus(group) == 1]
    if not with_gpus:
        yield f"the job has no GPUs; each replica that shares a GPU asks for {NATIVE_GPU}: 1"
    for group in with_single_gpu or with_gpus:
        yield from (f"the {group.type} template {why}" for why in _template_obstacles(group))
    pods = job.training_pods
    if settings.gpu_priority != HIGH and not (job.kind.yields_gpu and pods == 1):
        subject = f"a job of {pods} pods" if job.kind.yields_gpu else f"a {job.kind.name}"
        yield f"{subject} cannot have low priority yet; set {GPU_PRIORITY} to high"


def _template_obstacles(group: ReplicaGroup) -> Iterator[str]:
    if group.no_part:
        yield group.no_part
    if node := group.constraints.node_name:
        # The webhook would ignore the pods, which would use whole GPUs beside their reserved GPUs.
        yield (
            f"names its node (nodeName: {node!r}); allowed: no nodeName, as kfext chooses the node "
            f'with the GPU; e.g. nodeSelector: {{"kubernetes.io/hostname": "{node}"}}'
        )


def _gpus(group: ReplicaGroup) -> int:
    """Return the number of GPUs that a pod requests; a share counts as one GPU."""
    return 1 if group.share is not None else group.requests.get(NATIVE_GPU, 0)


def shares_by_type(share: GpuShare | None, job: TrainingJob) -> Mapping[str, GpuShare]:
    """Return the share by lower-case type, for types with replicas that request just one GPU."""
    if share is None:
        return {}
    types = (group.type.lower() for group in job.groups if group.requests.get(NATIVE_GPU) == 1)
    return dict.fromkeys(types, share)


def _counts(
    requests: Resources, need: CardNeed | None, *, needs: Collection[CardNeed], whole: bool
) -> Iterator[tuple[str, int]]:
    """Yield the requests of a replica for resources that count cards.

    `need`: the need of its share; None means that it has no share.
    `needs`: the needs of all shares of the job.
    `whole`: whether other replicas request whole GPUs, which must fit beside the shares.
    """
    if need is not None:
        yield need.name, 1
    for other in needs if whole else ():
        if number := requests.get(NATIVE_GPU, 0) if need is None else int(other == need):
            yield CardsFor(other, whole=True).name, number


# --- cards --------------------------------------------------------------------------------------


def slot_resources(slot: int) -> tuple[str, ...]:
    """Return the resources of a slot, in the order of `Cards.free`.

    These are the time in hundredths, as in Kubernetes; the memory in MiB of the sharers with a
    stated memory; the hundredths of time of the other sharers; the number of high-priority sharers;
    the thousandths of time that they do not use; and the reservation of the slot.
    """
    card = f"{_CARD_PREFIX}{slot}"
    unsized, high, idle = f"{card} unsized", f"{card} high", f"{card} idle"
    return resource_of(slot), f"{card} memory", unsized, high, idle, f"{card} reserved"


def is_of_card(resource: str) -> bool:
    """Return whether a resource belongs to a card, so that only kfext knows it."""
    return resource.startswith(_CARD_PREFIX)


TIME, MEMORY, UNSIZED, PRIORITY, IDLE, RESERVED = range(len(slot_resources(0)))
"""The position of each resource in `slot_resources`."""


def capacity(slot: int, *, memory: int) -> Resources:
    """Return the resources of a card with `memory` MiB, except its time."""
    fraction, least = _RESERVE
    usable = memory - max(int(memory * fraction), least)
    _, *names = slot_resources(slot)
    return dict(zip(names, (max(usable, 0), UNITS, 1, _PERMILLE, 1), strict=True))


def taken_by(need: CardNeed, slot: int, *, busy: int = _PERMILLE) -> Resources:
    """Return the resources of a slot that a replica uses.

    `busy`: the thousandths of time in which a high-priority replica keeps the card busy.
    """
    time, memory, unsized, high, idle, _ = slot_resources(slot)
    used = {time: need.units, idle: busy if need.high else need.idle}
    if need.memory is None:
        used[unsized] = need.units
    else:
        used[memory] = need.memory + CONTEXT
    return {name: number for name, number in {**used, high: int(need.high)}.items() if number}


def kept_for(need: CardNeed, slot: int) -> Resources:
    """Return the resources of a slot that are kept for a waiting replica.

    For a low-priority replica they exclude a high-priority sharer, which might use too much time.
    """
    guard = {slot_resources(slot)[PRIORITY]: 1} if need.idle else {}
    return {**taken_by(need, slot), **guard}


def kept_requests(requests: Resources, need: CardNeed, slot: int) -> Resources:
    """Return the resources of a node that are kept for a waiting replica in a slot."""
    return {**without_card_counts(requests), **kept_for(need, slot)}


def taken_by_reservation(slot: int) -> Resources:
    """Return the resources that the reservation pod of a slot uses."""
    return {NATIVE_GPU: 1, slot_resources(slot)[RESERVED]: 1}


def slots_among(resources: Collection[str]) -> int:
    """Return the largest number of slots of a node, if these are the resources of all nodes."""
    slots = (slot for slot in range(MAX_SLOTS) if resource_of(slot) in resources)
    return max(slots, default=-1) + 1


_SLOT_OF = {
    name: slot
    for slot in range(MAX_SLOTS)
    for name in slot_resources(slot)
    if name != slot_resources(slot)[RESERVED]
}


def slots_in(requests: Resources) -> set[int]:
    """Return the slots with resources among the requests."""
    return {_SLOT_OF[name] for name in requests.keys() & _SLOT_OF.keys()}


def has_priority(requests: Resources, slot: int) -> bool:
    """Return whether the requests belong to the high-priority sharer of a slot."""
    return slot_resources(slot)[PRIORITY] in requests


_SIZES = (UNITS, UNITS // 2, UNITS // 4)
"""The shares, in hundredths, that other jobs are assumed to request, each equally likely."""
_USELESS = np.array(
    [sum(free for size in _SIZES if free < size) / len(_SIZES) for free in range(UNITS + 1)]
)
"""By the free hundredths of a card: how many of them are useless to other jobs on average.

This is the fragmentation of "Beware of Fragmentation" (Q. Weng et al., USENIX ATC 2023)."""

Read = Callable[[Sequence[str]], Amounts]
"""Names of resources -> their amounts on each row, shape (resources, rows)."""


def with_cards(
    amounts: Amounts, resources: Collection[str], cards: Callable[[], "Cards"]
) -> Amounts:
    """Return `amounts`, shape (resources, rows), with the numbers of cards filled in."""
    wanted = {line: need for line, name in enumerate(resources) if (need := cards_counted_by(name))}
    if wanted:
        slots = cards()
        for line, need in wanted.items():
            amounts[line] = slots.count(need)
    return amounts


class Cards:
    """The slots of all rows of a ledger, at one moment.

    `slots`: the largest number of slots of a node.
    `free`, `allocatable`: functions that read the ledger.
    """

    def __init__(self, slots: int, *, free: Read, allocatable: Read) -> None:
        names = [slot_resources(slot) for slot in range(slots)]
        self._native: Amounts = np.maximum(free([NATIVE_GPU])[0], 0)  # not reserved for any slot
        rows = len(self._native)
        amounts = free([name for slot_names in names for name in slot_names])
        # By resource, slot and row.
        self._free: Amounts = amounts.reshape(slots, len(slot_resources(0)), rows).swapaxes(0, 1)
        self._memory: Amounts = allocatable([slot_names[MEMORY] for slot_names in names])
        self._reserved: Mask = self._free[RESERVED] <= 0

    def count(self, cards: CardsFor) -> Amounts:
        """Return the number of cards on each row that meet a need, shape (rows,)."""
        mask = self._meets(cards.need)
        count: Amounts = (mask & self._reserved).sum(axis=0)
        spare: Amounts = (mask & ~self._reserved).sum(axis=0)
        count += self._native if cards.whole else np.minimum(spare, self._native)
        return count

    def is_reserved(self, row: int, slot: int) -> bool:
        """Return whether a GPU is reserved for a slot of a row."""
        return bool(self._reserved[slot, row])

    def harm(self, need: CardNeed) -> NDArray[np.float64]:
        """Return how much capacity a replica makes useless to other jobs, in hundredths, by row.

        The replica is on the card with the least harm; infinity means that no card meets the need.
        """
        possible = self._meets(need) & (self._reserved | (self._native > 0))
        harm = np.where(possible, self._harm(need), np.inf)
        least: NDArray[np.float64] = harm.min(axis=0, initial=np.inf)
        return least

    def choose(self, row: int, needs: Sequence[CardNeed], *, whole: int = 0) -> list[int] | None:
        """Return a slot of a row for each replica of a job; None means that the cards are too few.

        `whole`: the number of whole GPUs of the row that other replicas of the job use.
        Each replica has a card of its own. The slot with the least harm is preferred, then the
        fullest, then the lowest.
        """
        new = max(int(self._native[row]) - whole, 0)
        reserved = self._reserved[:, row]
        chosen: dict[int, int] = {}
        # Replicas of one job have the same need, but some may have their slot already.
        for number in sorted(range(len(needs)), key=lambda number: needs[number].slot is None):
            slots = self._usable(needs[number], row, new=new)
            slot = next((slot for slot in slots if slot not in chosen.values()), None)
            if slot is None:
                return None
            chosen[number] = slot
        if np.count_nonzero(~reserved[[*chosen.values()]]) > new:
            return None
        return [chosen[number] for number in range(len(needs))]

    def _usable(self, need: CardNeed, row: int, *, new: int) -> list[int]:
        """Return the slots of a row that meet a need, the best first.

        `new`: the most slots without a reserved GPU to return.
        """
        meets, reserved = self._meets(need)[:, row], self._reserved[:, row]
        usable = [*np.flatnonzero(meets & reserved), *np.flatnonzero(meets & ~reserved)[:new]]
        harm = self._harm(need)[usable, row]
        order = np.lexsort((usable, self._free[TIME, usable, row], harm))
        return [int(usable[number]) for number in order]

    def _meets(self, need: CardNeed) -> Mask:
        """Return whether each card meets a need, by slot and row."""
        time, memory, unsized, high, idle, _ = self._free
        mask: Mask = time >= need.units
        # A sharer without a stated memory has the same fraction of the memory as of the time.
        free = memory * UNITS - self._memory * (UNITS - unsized)
        if need.memory is None:
            mask = mask & (free >= self._memory * need.units) & (self._memory > 0)
        else:
            mask = mask & (free >= (need.memory + CONTEXT) * UNITS)
        if need.high:
            mask = mask & (high > 0)
        elif need.idle:
            mask = mask & ((high > 0) | (idle >= need.idle))
        if need.slot is not None:
            mask = mask & (np.arange(len(time)) == need.slot)[:, None]
        return mask

    def _harm(self, need: CardNeed) -> NDArray[np.float64]:
        """Return the harm on each card, by slot and row."""
        free = np.clip(self._free[TIME], 0, UNITS)
        after = np.clip(free - need.units, 0, UNITS)
        harm: NDArray[np.float64] = _USELESS[after] - _USELESS[free]
        return harm
