"""Capacity reserved for a job until enough other jobs have ended.

This is EASY backfill: only the first job of the queue that has waited long enough has a
reservation; all other jobs start freely around it. It is on the nodes with the least capacity still
to be freed. It is derived from the ledger on demand and never stored. Source: Lifka, The ANL/IBM SP
scheduling system (1995); the treatment of jobs with an unknown end is kfext's own.

On each node the need of the waiting job is reserved, less the capacity that the awaited jobs will
free there. Later jobs may use all other capacity without delaying the waiting job.
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
from kfext.core.queue.occupants import Ends, Need, Occupants, amounts_to_reserve, leavers, need_of
from kfext.model.gang_terms import Exclusive
from kfext.model.quantity import Resources
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation(Hold):
    """The hold of a job that waits for the end of other jobs; its claims keep later jobs out.

    `until`: the expected end of the last of these jobs, in epoch seconds.
    `backfill_until`: jobs that end by then may use the capacity, in epoch seconds; an estimate if
        `until` is unknown.
    `nodes`: the names of the nodes where the job will run.
    `to_free`: the capacity that the awaited jobs occupy there, as a multiple of the gang's need.
    """

    kind: HoldKind = HoldKind.RESERVATION
    nodes: tuple[str, ...]
    to_free: float
    backfill_until: float = -math.inf

    def admits_backfill(self, end: float) -> bool:
        """Return whether a job that ends at `end`, in epoch seconds, cannot delay the gang."""
        return end <= self.backfill_until


def kept_claims(job_uid: str, amounts_by_node: Mapping[str, Resources]) -> dict[Hashable, Claim]:
    """Return the claims of a reservation with these amounts, by node."""
    return {
        ("reserved", node): Claim(node=node, requests=amounts, job=job_uid, kept=True)
        for node, amounts in amounts_by_node.items()
        if amounts
    }


def reservation_on(
    job_uid: str, occupants: Occupants, *, needs: Mapping[str, Need], total: Need, ends: Ends
) -> Reservation:
    """Return the reservation of a gang on certain nodes; the awaited jobs leave `occupants`.

    `needs`: the gang's need on each node.
    `total`: the sum of the needs.
    """
    waits_for = leavers(occupants, needs, total=total, ends=ends)
    kept = {node: amounts_to_reserve(occupants, node, need) for node, need in needs.items()}
    return Reservation(
        job=job_uid,
        nodes=tuple(sorted(needs)),
        waits_for=tuple(sorted(waits_for)),
        until=max((ends.get(uid, math.inf) for uid in waits_for), default=math.inf),
        to_free=sum(occupants.size(uid, total) for uid in waits_for),
        claims=kept_claims(job_uid, kept),
    )


_TRIED = 8
"""The most single nodes that are compared, the least missing capacity first."""
_Division = dict[str, Amounts]
"""The amounts that the gang will use on each node, shape (resources,)."""


@dataclass(frozen=True, slots=True)
class _Prospect:
    """A gang and the capacity for it. Amounts have shape (resources, rows).

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
    `soonest`: whether to choose the nodes where the gang can start first, instead of the nodes
        where the least must be freed.
    The result is None for a gang that would not fit even after the end of all training jobs (kfext
    waits for no other pods), and for a gang that has no job to wait for.
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
    divisions = [division for division in possible if limits.allow(division)]
    if possible and not divisions:  # only the solver can respect these limits
        divisions = _as_placed(members, emptied, limits)
    exclusive = {item for batch in wanted.batches for item in batch.constraints.exclusive}
    reservations, total = [], need_of(wanted.resources, wanted.total)
    for division in divisions:
        needs = {node: need_of(wanted.resources, amounts) for node, amounts in division.items()}
        occupants = Occupants(needs, ledger, exclusive=exclusive, ignoring=ignoring)
        reservation = reservation_on(job_uid, occupants, needs=needs, total=total, ends=ends)
        if _suffices(reservation, occupants, needs):
            reservations.append(reservation)

    def rank(hold: Reservation) -> tuple[object, ...]:
        return (hold.until if soonest else 0.0, hold.to_free, len(hold.nodes), hold.nodes)

    return min(reservations, key=rank, default=None)


def _suffices(reservation: Reservation, occupants: Occupants, needs: Mapping[str, Need]) -> bool:
    """Return whether the gang fits once the jobs that it waits for have ended, but no sooner.

    A gang also waits for a GPU without sharers, which will be freed soon.
    """
    if not all(occupants.holds(node, need) for node, need in needs.items()):
        return False
    fits_now = all(occupants.holds(node, need, before=True) for node, need in needs.items())
    return bool(reservation.waits_for) or not fits_now


def _on_one_node(prospect: _Prospect, *, all_alike: bool) -> list[_Division]:
    """Return the needs on single nodes that can hold the gang, the least missing capacity first.

    `all_alike`: whether to return only the nodes with the least missing capacity.
    Nodes with equal missing capacity may differ in the jobs that occupy it, and with cards they
    usually do, so several nodes are compared.
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


def _on_many(prospect: _Prospect) -> list[_Division]:
    """Return the need on a node set, found greedily: free capacity first, the freest node first."""
    wanted, ledger = prospect.wanted, prospect.ledger
    scale = np.maximum(wanted.total, 1)[:, None]
    freest = -(np.minimum(prospect.free, scale) / scale).sum(axis=0)
    order = np.lexsort((ledger.name_order(), np.round(freest, 9)))
    used = np.zeros_like(prospect.later)
    exclusive_rows: dict[Exclusive, Mask] = {}
    for batch, mask in zip(wanted.batches, prospect.masks, strict=True):
        unplaced, exclusive = batch.count, batch.constraints.exclusive
        most = np.where(mask, 1 if exclusive else unplaced, 0)
        for item in exclusive:
            most[exclusive_rows.get(item, [])] = 0
        counts = np.zeros_like(most)
        for amounts in (prospect.free, prospect.later):
            fitting = np.minimum(_fitting(amounts - used, batch.requests), most - counts)[order]
            before = np.cumsum(fitting) - fitting
            placed = np.clip(unplaced - before, 0, fitting)
            used[:, order] += placed * batch.requests[:, None]
            counts[order] += placed
            unplaced -= int(placed.sum())
        if unplaced:
            return []
        for item in exclusive:
            exclusive_rows[item] = exclusive_rows.get(item, False) | (counts > 0)
    rows = np.flatnonzero(used.any(axis=0))
    return [{_name(prospect, int(row)): used[:, row] for row in rows}]


def _as_placed(members: Sequence[Member], emptied: Ledger, limits: Limits) -> list[_Division]:
    """Return the need on the nodes that the solver would choose after the end of all training jobs.

    The solver chooses by requests, so that no more is reserved than the gang requests.
    """
    placed = place(members, emptied, replace(limits, assumed_burst=None))
    if isinstance(placed, Verdict):
        return []
    wanted = gang(members)
    by_member = [batch.requests for batch in wanted.batches for _ in range(batch.count)]
    division: _Division = {}
    for member, requests in zip(wanted.members, by_member, strict=True):
        node = placed[member.key]
        division[node] = division[node] + requests if node in division else requests
    return [division]


def _fitting(amounts: Amounts, requests: Amounts) -> Amounts:
    """Return the number of members with these requests that fit each row's amounts."""
    requested = requests > 0
    fitting: Amounts = (amounts[requested] // requests[requested, None]).min(axis=0, initial=2**31)
    return np.maximum(fitting, 0)


def _name(prospect: _Prospect, row: int) -> str:
    node = prospect.ledger.nodes[row]
    return node.name if node else ""
