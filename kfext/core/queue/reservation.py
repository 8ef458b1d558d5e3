"""Capacity reserved for a job until enough others have ended, and what is left for later jobs.

On each node, later jobs must leave free what the waiting job needs, less what the jobs it waits
for will free. All other capacity they may use meanwhile without delaying it.
"""

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.columns import LARGEST
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Gang

Ends = Mapping[str, float]
"""Uid of a running job -> its latest end, in epoch seconds; jobs with an unknown end are absent."""

Needs = dict[str, NDArray[np.int64]]
"""Node -> amounts of the gang's resources, shape (resources,)."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity that is reserved for a job.

    `job_uid`: the job.
    `nodes`: the names of the nodes where it will run.
    `waits_for`: the uids of the jobs that must end first.
    `until`: when the last of them ends, in epoch seconds; infinite if that is not known.
    `to_free`: how much those jobs hold on the nodes, in sizes of the waiting gang.
    `claims`: the claims that keep later jobs out.
    """

    job_uid: str
    nodes: tuple[str, ...]
    waits_for: tuple[str, ...]
    until: float
    to_free: float
    claims: Mapping[Hashable, Claim]

    def lets_in(self, ends: float | None) -> bool:
        """Return whether a job that ends by `ends` cannot delay the waiting one."""
        return ends is not None and math.isfinite(self.until) and ends <= self.until


def reserved_key(node: str) -> Hashable:
    """Return the key of the claim that a reservation has on a node."""
    return ("reserved", node)


def keep(
    job_uid: str,
    wanted: Gang,
    ledger: Ledger,
    *,
    needs: Needs,
    ends: Ends,
    ignoring: Collection[Hashable],
) -> Reservation:
    """Return the reservation of a gang that will take `needs`, on a ledger without `ignoring`."""
    held = _held(wanted, ledger, needs, ignoring)
    gaps = _gaps(wanted, ledger, needs=needs, ignoring=ignoring)
    takers = _port_takers(wanted, ledger, needs, ignoring)
    leavers = _leavers(held, gaps, takers=takers, ends=ends, total=wanted.total)
    claims: dict[Hashable, Claim] = {}
    for node, amounts in needs.items():
        left = amounts.copy()
        for uid in leavers:
            left -= held[uid].get(node, 0)
        kept = {name: int(n) for name, n in zip(wanted.resources, left, strict=True) if n > 0}
        if kept:
            claims[reserved_key(node)] = Claim(node=node, requests=kept, job=job_uid)
    return Reservation(
        job_uid=job_uid,
        nodes=tuple(sorted(needs)),
        waits_for=tuple(sorted(leavers)),
        until=max((ends.get(uid, math.inf) for uid in leavers), default=math.inf),
        to_free=sum(_size(held[uid], wanted.total) for uid in leavers),
        claims=claims,
    )


def _gaps(wanted: Gang, ledger: Ledger, *, needs: Needs, ignoring: Collection[Hashable]) -> Needs:
    """Return the amounts that are still missing on each of the nodes."""
    free = ledger.free(wanted.resources, ignoring=ignoring)
    rows = {node: ledger.row(node) for node in needs}
    return {
        node: np.maximum(needs[node] - free[:, row], 0)
        for node, row in rows.items()
        if row is not None
    }


def _held(
    wanted: Gang, ledger: Ledger, nodes: Collection[str], ignoring: Collection[Hashable]
) -> dict[str, Needs]:
    """Return what each training job holds on each of the nodes."""
    held: dict[str, Needs] = {}
    for claim in ledger.claims_on(nodes, ignoring=ignoring):
        if claim.job:
            taken = [min(claim.requests.get(name, 0), LARGEST) for name in wanted.resources]
            amounts, of = np.array(taken, dtype=np.int64), held.setdefault(claim.job, {})
            before = of.get(claim.node, np.zeros_like(amounts))
            of[claim.node] = np.minimum(before + amounts, LARGEST)
    return held


def _port_takers(
    wanted: Gang, ledger: Ledger, nodes: Collection[str], ignoring: Collection[Hashable]
) -> set[str]:
    """Return the training jobs that have a host port of the gang on one of its nodes."""
    exclusive = {one for batch in wanted.batches for one in batch.constraints.exclusive}
    claims = ledger.claims_on(nodes, ignoring=ignoring) if exclusive else ()
    return {one.job for one in claims if one.job and not exclusive.isdisjoint(one.exclusive)}


def _leavers(
    held: dict[str, Needs],
    gaps: Needs,
    *,
    takers: Collection[str],
    ends: Ends,
    total: NDArray[np.int64],
) -> list[str]:
    """Return the jobs to wait for, and no more than needed: known ends first, else the smallest.

    All `takers` of its ports must end.

    The smallest free hardly more than what is missing. Later jobs may use what is freed beyond
    that, and a long series of them must not starve the waiting job.
    """

    def size(uid: str) -> float:
        return _size(held[uid], total)

    left = {node: amounts.copy() for node, amounts in gaps.items()}
    chosen: list[str] = []
    for uid in sorted(held, key=lambda uid: (ends.get(uid, math.inf), size(uid), uid)):
        of = {node: amounts for node, amounts in held[uid].items() if node in left}
        if uid in takers or any(
            (np.minimum(amounts, left[node]) > 0).any() for node, amounts in of.items()
        ):
            chosen.append(uid)
            for node, amounts in of.items():
                left[node] -= amounts
    for uid in sorted(set(chosen).difference(takers), key=lambda uid: (-size(uid), uid)):
        of = {node: amounts for node, amounts in held[uid].items() if node in left}
        if all((left[node] + amounts <= 0).all() for node, amounts in of.items()):
            chosen.remove(uid)
            for node, amounts in of.items():
                left[node] += amounts
    return chosen


def _size(held: Needs, total: NDArray[np.int64]) -> float:
    """Return what a job holds, in sizes of the waiting gang."""
    shares = (float((amounts / np.maximum(total, 1)).sum()) for amounts in held.values())
    return round(sum(shares), 9)
