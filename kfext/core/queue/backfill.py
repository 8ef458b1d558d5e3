"""EASY backfill: on which nodes capacity is reserved: where the least is still to be freed.

Only the first job of the queue that has waited long enough gets a reservation; all others start
freely around it. It is derived from the ledger on demand and never stored. Source: Lifka, The
ANL/IBM SP scheduling system (1995); the treatment of jobs with an unknown end is kfext's own.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.eligible import Mask
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Batch, Gang, Member, gang
from kfext.core.placement.limits import Limits
from kfext.core.placement.place import place
from kfext.core.queue.reservation import Ends, Needs, Reservation, keep
from kfext.model.gang_terms import Exclusive
from kfext.model.verdict import Verdict


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
) -> Reservation | None:
    """Return the reservation of a gang that does not fit now.

    `ignoring` are the claims of the reservation that this one replaces. Return None if the gang
    would not fit even after all training jobs have ended (kfext waits for the end of no other pod),
    or if there is no job to wait for.
    """
    wanted = gang(members)
    limits = limits.with_terms(batch.constraints for batch in wanted.batches)
    emptied = ledger.without(lambda tier: tier.of_job)
    shut = limits.excluded
    open_ = np.array([node is not None and node.name not in shut for node in ledger.nodes])
    prospect = _Prospect(
        wanted=wanted,
        ledger=ledger,
        free=ledger.free(wanted.resources, ignoring=ignoring),
        later=emptied.free(wanted.resources),
        masks=[
            ledger.eligible(batch.constraints) & open_ & _without_taken(batch, emptied)
            for batch in wanted.batches
        ],
    )
    found = [need for need in (_on_one_node(prospect), _on_many(prospect)) if need is not None]
    needs = [need for need in found if limits.allow(need)]
    if found and not needs:  # only the solver knows how to keep within these limits
        needs = _as_placed(members, emptied, limits)
    kept = (
        keep(job_uid, wanted, ledger, needs=need, ends=ends, ignoring=ignoring) for need in needs
    )
    return min(
        (one for one in kept if one.waits_for),  # else nothing that ends would make it fit
        key=lambda one: (one.to_free, len(one.nodes), one.nodes),
        default=None,
    )


def _without_taken(batch: Batch, emptied: Ledger) -> Mask:
    """Return the rows where no pod has what is exclusive to the batch but those kfext waits for."""
    mask = np.ones(len(emptied.nodes), dtype=np.bool_)
    mask[emptied.with_any_taken(batch.constraints.exclusive)] = False
    return mask


def _on_one_node(prospect: _Prospect) -> Needs | None:
    """Return the need on the one node that can hold the whole gang and lacks least of it now."""
    wanted, total = prospect.wanted, prospect.wanted.total[:, None]
    fits = np.logical_and.reduce(prospect.masks) & (prospect.later >= total).all(axis=0)
    rows = np.flatnonzero(fits)
    if not len(rows) or wanted.apart:
        return None
    lacks = (np.maximum(total - prospect.free[:, rows], 0) / np.maximum(total, 1)).sum(axis=0)
    names = prospect.ledger.name_order()[rows]
    best = rows[np.lexsort((names, np.round(lacks, 9)))[0]]
    return {_name(prospect, int(best)): wanted.total}


def _on_many(prospect: _Prospect) -> Needs | None:
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
        for one in exclusive:
            most[taken_by.get(one, [])] = 0
        taken = np.zeros_like(most)
        for amounts in (prospect.free, prospect.later):
            room = np.minimum(_copies(amounts - used, batch.requests), most - taken)[order]
            before = np.cumsum(room) - room
            some = np.clip(left - before, 0, room)
            used[:, order] += some * batch.requests[:, None]
            taken[order] += some
            left -= int(some.sum())
        if left:
            return None
        for one in exclusive:
            taken_by[one] = taken_by.get(one, False) | (taken > 0)
    return {_name(prospect, int(row)): used[:, row] for row in np.flatnonzero(used.any(axis=0))}


def _as_placed(members: Sequence[Member], emptied: Ledger, limits: Limits) -> list[Needs]:
    """Return the need on the nodes that the solver would choose if all training jobs had ended.

    It chooses by requests, so that no more is reserved than the gang needs.
    """
    placed = place(members, emptied, replace(limits, assumed_burst=None))
    if isinstance(placed, Verdict):
        return []
    wanted = gang(members)
    each = [batch.requests for batch in wanted.batches for _ in range(batch.count)]
    needs: Needs = {}
    for member, requests in zip(wanted.members, each, strict=True):
        node = placed[member.key]
        needs[node] = needs[node] + requests if node in needs else requests
    return [needs]


def _copies(amounts: Amounts, requests: Amounts) -> Amounts:
    """Return how many members with these requests fit into the amounts of each row."""
    asked = requests > 0
    fitting: Amounts = (amounts[asked] // requests[asked, None]).min(axis=0, initial=2**31)
    return np.maximum(fitting, 0)


def _name(prospect: _Prospect, row: int) -> str:
    node = prospect.ledger.nodes[row]
    return node.name if node else ""
