"""Capacity reserved for a job until enough others have ended, and what is left for later jobs.

This is EASY backfill: only the first job of the queue that has waited long enough gets a
reservation; all other jobs start freely around it. The reservation is where the least is still to
be freed. It is derived from the ledger on demand and never stored. Source: Lifka, The ANL/IBM SP
scheduling system (1995); the treatment of jobs with an unknown end is kfext's own.

On each node, later jobs must leave free what the waiting job needs, less what the jobs that it
waits for will free. They may use all other capacity without delaying it.
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

    `until` is when the last of these jobs ends. `backfill_until`: jobs that end by then may use the
        capacity; where an end is unknown, by an estimate.
    `nodes`: the names of the nodes where the job will run.
    `to_free`: how much those jobs hold on the nodes, in sizes of the waiting gang.
    """

    kind: HoldKind = HoldKind.RESERVATION
    nodes: tuple[str, ...]
    to_free: float
    backfill_until: float = -math.inf

    def admits_backfill(self, ends: float) -> bool:
        """Return whether a job that ends by `ends` cannot delay the waiting job."""
        return ends <= self.backfill_until


def kept_claims(job_uid: str, kept: Mapping[str, Resources]) -> dict[Hashable, Claim]:
    """Return the claims of a reservation that keeps such amounts of nodes."""
    return {
        ("reserved", node): Claim(node=node, requests=amounts, job=job_uid, kept=True)
        for node, amounts in kept.items()
        if amounts
    }


def keep(
    job_uid: str, on: Occupants, *, needs: Mapping[str, Need], total: Need, ends: Ends
) -> Reservation:
    """Return the reservation of a gang that will take `needs` of nodes, and `total` of all.

    The jobs that it waits for leave `on`.
    """
    waits_for = leavers(on, needs, total=total, ends=ends)
    kept = {node: kept_of(on, node, need) for node, need in needs.items()}
    return Reservation(
        job=job_uid,
        nodes=tuple(sorted(needs)),
        waits_for=tuple(sorted(waits_for)),
        until=max((ends.get(uid, math.inf) for uid in waits_for), default=math.inf),
        to_free=sum(on.size(uid, total) for uid in waits_for),
        claims=kept_claims(job_uid, kept),
    )


_TRIED = 8
"""How many nodes are compared that lack the least."""
_Way = dict[str, Amounts]
"""Node -> what the gang will take of it, shape (resources,)."""


@dataclass(frozen=True, slots=True)
class _Prospect:
    """The capacity for a gang. Amounts have shape (resources, rows).

    `free`: what is free now.
    `later`: what is free when all training jobs have ended.
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

    `soonest`: where the gang can start first, instead of where the least is to be freed.
    `ignoring`: the claims of the reservation that this one replaces. Return None for a gang that
    would not fit even after all training jobs have ended (kfext waits for the end of no other pod),
    and without a job to wait for.
    """
    wanted = gang(members)
    may = candidates(wanted, ledger, limits, ended=True)
    limits, ledger, emptied = may.limits, may.ledger, may.occupied
    prospect = _Prospect(
        wanted=wanted,
        ledger=ledger,
        free=ledger.free(wanted.resources, ignoring=ignoring),
        later=emptied.free(wanted.resources, ignoring=ignoring),
        masks=may.open,
    )
    found = [*_on_one_node(prospect, all_alike=not soonest), *_on_many(prospect)]
    ways = [way for way in found if limits.allow(way)]
    if found and not ways:  # only the solver knows how to keep within these limits
        ways = _as_placed(members, emptied, limits)
    exclusive = {item for batch in wanted.batches for item in batch.constraints.exclusive}
    kept, total = [], need_of(wanted.resources, wanted.total)
    for way in ways:
        needs = {node: need_of(wanted.resources, amounts) for node, amounts in way.items()}
        on = Occupants(needs, ledger, exclusive=exclusive, ignoring=ignoring)
        reservation = keep(job_uid, on, needs=needs, total=total, ends=ends)
        if _makes_room(reservation, on, needs):
            kept.append(reservation)

    def rank(found: Reservation) -> tuple[object, ...]:
        until = found.until if soonest else 0.0
        return (until, found.to_free, len(found.nodes), found.nodes)

    return min(kept, key=rank, default=None)


def _makes_room(reservation: Reservation, on: Occupants, needs: Mapping[str, Need]) -> bool:
    """Return whether the gang fits only after the jobs that it waits for have ended.

    A gang also waits for a GPU that is about to be given back, because no job has a part of it any
    more.
    """
    if not all(on.holds(node, need) for node, need in needs.items()):
        return False
    as_it_is = all(on.holds(node, need, already=True) for node, need in needs.items())
    return bool(reservation.waits_for) or not as_it_is


def _on_one_node(prospect: _Prospect, *, all_alike: bool) -> list[_Way]:
    """Return the need on each of the nodes that can hold the whole gang and lack least of it now.

    `all_alike`: whether nodes count only if they lack as little as the first.
    Nodes that lack the same may differ in which jobs hold it. For cards this is the rule, so some
    nodes are tried.
    """
    wanted, total = prospect.wanted, prospect.wanted.total[:, None]
    fits = np.logical_and.reduce(prospect.masks) & (prospect.later >= total).all(axis=0)
    rows = np.flatnonzero(fits)
    if not len(rows) or wanted.apart:
        return []
    lacks = (np.maximum(total - prospect.free[:, rows], 0) / np.maximum(total, 1)).sum(axis=0)
    lacks = np.round(lacks, 9)
    order = np.lexsort((prospect.ledger.name_order()[rows], lacks))
    alike = order[lacks[order] == lacks.min()] if all_alike else order
    best = rows[alike[:_TRIED]]
    return [{_name(prospect, int(row)): wanted.total} for row in best]


def _on_many(prospect: _Prospect) -> list[_Way]:
    """Return the need on a node set: free capacity is used first, the freest node first."""
    wanted, ledger = prospect.wanted, prospect.ledger
    scale = np.maximum(wanted.total, 1)[:, None]
    freest = -(np.minimum(prospect.free, scale) / scale).sum(axis=0)
    order = np.lexsort((ledger.name_order(), np.round(freest, 9)))
    used = np.zeros_like(prospect.later)
    taken_by: dict[Exclusive, Mask] = {}
    for batch, mask in zip(wanted.batches, prospect.masks, strict=True):
        left, exclusive = batch.count, batch.constraints.exclusive
        most = np.where(mask, 1 if exclusive else left, 0)
        for item in exclusive:
            most[taken_by.get(item, [])] = 0
        taken = np.zeros_like(most)
        for amounts in (prospect.free, prospect.later):
            room = np.minimum(_copies(amounts - used, batch.requests), most - taken)[order]
            before = np.cumsum(room) - room
            some = np.clip(left - before, 0, room)
            used[:, order] += some * batch.requests[:, None]
            taken[order] += some
            left -= int(some.sum())
        if left:
            return []
        for item in exclusive:
            taken_by[item] = taken_by.get(item, False) | (taken > 0)
    rows = np.flatnonzero(used.any(axis=0))
    return [{_name(prospect, int(row)): used[:, row] for row in rows}]


def _as_placed(members: Sequence[Member], emptied: Ledger, limits: Limits) -> list[_Way]:
    """Return the need on the nodes that the solver would choose if all training jobs had ended.

    The solver chooses by requests, so that no more is reserved than the gang needs.
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
    """Return how many members with these requests fit into the amounts of each row."""
    asked = requests > 0
    fitting: Amounts = (amounts[asked] // requests[asked, None]).min(axis=0, initial=2**31)
    return np.maximum(fitting, 0)


def _name(prospect: _Prospect, row: int) -> str:
    node = prospect.ledger.nodes[row]
    return node.name if node else ""
