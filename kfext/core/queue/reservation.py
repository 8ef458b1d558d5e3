"""Capacity reserved for a job until enough other jobs have ended.

This is EASY backfill: only the first job of the queue that has waited long enough has a
reservation; all other jobs start freely around it. It is on the nodes with the least capacity still
to be freed. It is derived from the ledger on demand and never stored. Source: Lifka, The ANL/IBM SP
scheduling system (1995); the treatment of jobs with an unknown end is kfext's own.

On each node, later jobs may not use the need of the waiting job, less the capacity that the jobs
that it waits for will free. They may use all other capacity without delaying it.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kfext.core.ledger.capacity_hold import Hold, HoldKind
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.fit import Mask
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.candidates import candidates
from kfext.core.placement.gang import Gang, Limits, Member, gang
from kfext.core.placement.place import place
from kfext.core.queue.occupants import Ends, Need, Occupants, kept_of, leavers, need_of
from kfext.model.gang_terms import Exclusive
from kfext.model.quantity import Resources
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation(Hold):
    """The hold of a job that waits for the end of other jobs; its claims keep later jobs out.

    `until`: the expected end of the last of these jobs.
    `backfill_until`: the latest end of jobs that may use the capacity, an estimate if `until` is
        unknown.
    `nodes`: the names of the nodes where the job will run.
    `to_free`: the capacity that the awaited jobs occupy there, in sizes of the waiting gang.
    """

    kind: HoldKind = HoldKind.RESERVATION
    nodes: tuple[str, ...]
    to_free: float
    backfill_until: float = -math.inf

    def admits_backfill(self, ends: float) -> bool:
        """Return whether a job that ends by `ends` cannot delay the waiting job."""
        return ends <= self.backfill_until


def kept_claims(job_uid: str, amounts_by_node: Mapping[str, Resources]) -> dict[Hashable, Claim]:
    """Return the claims of a reservation with these amounts, by node."""
    return {
        ("reserved", node): Claim(node=node, requests=amounts, job=job_uid, kept=True)
        for node, amounts in amounts_by_node.items()
        if amounts
    }


def keep(
    job_uid: str, occupants: Occupants, *, needs: Mapping[str, Need], total: Need, ends: Ends
) -> Reservation:
    """Return the reservation of a gang with these needs by node, and their sum `total`.

    The jobs that it waits for leave `occupants`.
    """
    waits_for = leavers(occupants, needs, total=total, ends=ends)
    kept = {node: kept_of(occupants, node, need) for node, need in needs.items()}
    return Reservation(
        job=job_uid,
        nodes=tuple(sorted(needs)),
        waits_for=tuple(sorted(waits_for)),
        until=max((ends.get(uid, math.inf) for uid in waits_for), default=math.inf),
        to_free=sum(occupants.size(uid, total) for uid in waits_for),
        claims=kept_claims(job_uid, kept),
    )


_TRIED = 8
"""The most nodes compared, in the order of missing capacity."""
_Way = dict[str, Amounts]
"""The amounts that the gang will use, by node, shape (resources,)."""


@dataclass(frozen=True, slots=True)
class _Prospect:
    """The capacity for a gang. Amounts have shape (resources, rows).

    `free`: the free amounts now.
    `later`: the free amounts after the end of all training jobs.
    `masks`: `masks[b]` marks the rows that batch b may use.
    """

    wanted: Gang
    ledger: Ledger
    free: Amounts
    later: Amounts
    masks: Sequence[Mask]


def reserve(
    job_uid: str,
    members: Sequence[Member],
    ledger: Ledger,
    limits: Limits,
    *,
    ends: Ends,
    ignoring: Collection[Hashable] = (),
    soonest: bool = False,
) -> Reservation | None:
    """Return the reservation of a gang that does not fit now.

    `ignoring`: the claims of the reservation that it replaces.
    `soonest`: whether it is where the gang can start first, not where the least is to be freed.
    The result is None for a gang that would not fit even after the end of all training jobs (kfext
    waits for no other pod), and without a job to wait for.
    """
    wanted = gang(members)
    allowed = candidates(wanted, ledger, limits, ended=True)
    limits, ledger, emptied = allowed.limits, allowed.ledger, allowed.occupied
    prospect = _Prospect(
        wanted=wanted,
        ledger=ledger,
        free=ledger.free(wanted.resources, ignoring=ignoring),
        later=emptied.free(wanted.resources, ignoring=ignoring),
        masks=allowed.open,
    )
    possible = [*_on_one_node(prospect, all_alike=not soonest), *_on_many(prospect)]
    ways = [way for way in possible if limits.allow(way)]
    if possible and not ways:  # only the solver can respect these limits
        ways = _as_placed(members, emptied, limits)
    exclusive = {item for batch in wanted.batches for item in batch.constraints.exclusive}
    reservations, total = [], need_of(wanted.resources, wanted.total)
    for way in ways:
        needs = {node: need_of(wanted.resources, amounts) for node, amounts in way.items()}
        occupants = Occupants(needs, ledger, exclusive=exclusive, ignoring=ignoring)
        reservation = keep(job_uid, occupants, needs=needs, total=total, ends=ends)
        if _makes_room(reservation, occupants, needs):
            reservations.append(reservation)

    def rank(hold: Reservation) -> tuple[object, ...]:
        return (hold.until if soonest else 0.0, hold.to_free, len(hold.nodes), hold.nodes)

    return min(reservations, key=rank, default=None)


def _makes_room(reservation: Reservation, occupants: Occupants, needs: Mapping[str, Need]) -> bool:
    """Return whether the gang fits only after the jobs that it waits for have ended.

    A gang also waits for a GPU without sharers, which will be freed soon.
    """
    if not all(occupants.holds(node, need) for node, need in needs.items()):
        return False
    as_it_is = all(occupants.holds(node, need, already=True) for node, need in needs.items())
    return bool(reservation.waits_for) or not as_it_is


def _on_one_node(prospect: _Prospect, *, all_alike: bool) -> list[_Way]:
    """Return the needs on single nodes that can hold the gang, the least missing capacity first.

    `all_alike`: whether only nodes with the least missing capacity count.
    Nodes with equal missing capacity may differ in the jobs that occupy it. For cards this is the
    rule, so several nodes are tried.
    """
    wanted, total = prospect.wanted, prospect.wanted.total[:, None]
    fits = np.logical_and.reduce(prospect.masks) & (prospect.later >= total).all(axis=0)
    rows = np.flatnonzero(fits)
    if not len(rows) or wanted.apart:
        return []
    missing = (np.maximum(total - prospect.free[:, rows], 0) / np.maximum(total, 1)).sum(axis=0)
    missing = np.round(missing, 9)
    order = np.lexsort((prospect.ledger.name_order()[rows], missing))
    alike = order[missing[order] == missing.min()] if all_alike else order
    best = rows[alike[:_TRIED]]
    return [{_name(prospect, int(row)): wanted.total} for row in best]


def _on_many(prospect: _Prospect) -> list[_Way]:
    """Return the need on a node set: free capacity first, the freest node first."""
    wanted, ledger = prospect.wanted, prospect.ledger
    scale = np.maximum(wanted.total, 1)[:, None]
    freest = -(np.minimum(prospect.free, scale) / scale).sum(axis=0)
    order = np.lexsort((ledger.name_order(), np.round(freest, 9)))
    used = np.zeros_like(prospect.later)
    taken_by: dict[Exclusive, Mask] = {}
    for batch, mask in zip(wanted.batches, prospect.masks, strict=True):
        unplaced, exclusive = batch.count, batch.constraints.exclusive
        most = np.where(mask, 1 if exclusive else unplaced, 0)
        for item in exclusive:
            most[taken_by.get(item, [])] = 0
        counts = np.zeros_like(most)
        for amounts in (prospect.free, prospect.later):
            room = np.minimum(_copies(amounts - used, batch.requests), most - counts)[order]
            before = np.cumsum(room) - room
            some = np.clip(unplaced - before, 0, room)
            used[:, order] += some * batch.requests[:, None]
            counts[order] += some
            unplaced -= int(some.sum())
        if unplaced:
            return []
        for item in exclusive:
            taken_by[item] = taken_by.get(item, False) | (counts > 0)
    rows = np.flatnonzero(used.any(axis=0))
    return [{_name(prospect, int(row)): used[:, row] for row in rows}]


def _as_placed(members: Sequence[Member], emptied: Ledger, limits: Limits) -> list[_Way]:
    """Return the need on the nodes that the solver would choose after the end of all training jobs.

    The solver chooses by requests, so that no more is reserved than the gang requests.
    """
    placed = place(members, emptied, replace(limits, assumed_burst=None))
    if isinstance(placed, Verdict):
        return []
    wanted = gang(members)
    each = [batch.requests for batch in wanted.batches for _ in range(batch.count)]
    way: _Way = {}
    for member, requests in zip(wanted.members, each, strict=True):
        node = placed[member.key]
        way[node] = way[node] + requests if node in way else requests
    return [way]


def _copies(amounts: Amounts, requests: Amounts) -> Amounts:
    """Return the number of members with these requests that fit the amounts of each row."""
    some = requests > 0
    fitting: Amounts = (amounts[some] // requests[some, None]).min(axis=0, initial=2**31)
    return np.maximum(fitting, 0)


def _name(prospect: _Prospect, row: int) -> str:
    node = prospect.ledger.nodes[row]
    return node.name if node else ""
