"""Room that is kept for a job until enough others have ended, and what it leaves to the rest.

What younger jobs must leave alone on a node is what the waiting job needs there, less what the
jobs will free whose end it waits for: all else they may use meanwhile without delaying it.
"""

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Gang

Ends = Mapping[str, float]
"""Uid of a running job -> when it ends at the latest, in epoch seconds; unknown if not in it."""

Needs = dict[str, NDArray[np.int64]]
"""Node -> amounts of the gang's resources, shape (resources,)."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room that is kept for the job `job_uid` on `nodes`.

    `waits_for` are the uids of the jobs that must end first, `until` is when the last of them
    ends, in epoch seconds, infinite if that is not known, and `to_free` is how much they hold of
    the nodes, in gangs. `claims` keep younger jobs out.
    """

    job_uid: str
    nodes: tuple[str, ...]
    waits_for: tuple[str, ...]
    until: float
    to_free: float
    claims: Mapping[Hashable, Claim]

    def lets_in(self, ends: float | None) -> bool:
        """Return whether a job that would end by `ends` cannot delay the one that waits."""
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
    leavers = _leavers(held, gaps, ends=ends, total=wanted.total)
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
    """Return what is still missing on each of the nodes."""
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
    """Return what each training job holds of each of the nodes."""
    held: dict[str, Needs] = {}
    for claim in ledger.claims_on(nodes, ignoring=ignoring):
        if claim.job:
            amounts = np.array([claim.requests.get(name, 0) for name in wanted.resources])
            of = held.setdefault(claim.job, {})
            of[claim.node] = of[claim.node] + amounts if claim.node in of else amounts
    return held


def _leavers(
    held: dict[str, Needs], gaps: Needs, *, ends: Ends, total: NDArray[np.int64]
) -> list[str]:
    """Return the jobs whose end is waited for: known ends first, else the smallest, none to spare.

    The smallest, so that what they free is hardly more than what is missing: what is more than
    that may be lent to younger jobs, and a long row of those must not starve the one that waits.
    """

    def size(uid: str) -> float:
        return _size(held[uid], total)

    left = {node: amounts.copy() for node, amounts in gaps.items()}
    chosen: list[str] = []
    for uid in sorted(held, key=lambda uid: (ends.get(uid, math.inf), size(uid), uid)):
        of = {node: amounts for node, amounts in held[uid].items() if node in left}
        if any((np.minimum(amounts, left[node]) > 0).any() for node, amounts in of.items()):
            chosen.append(uid)
            for node, amounts in of.items():
                left[node] -= amounts
    for uid in sorted(chosen, key=lambda uid: (-size(uid), uid)):
        of = {node: amounts for node, amounts in held[uid].items() if node in left}
        if all((left[node] + amounts <= 0).all() for node, amounts in of.items()):
            chosen.remove(uid)
            for node, amounts in of.items():
                left[node] += amounts
    return chosen


def _size(held: Needs, total: NDArray[np.int64]) -> float:
    """Return what a job holds, in gangs."""
    shares = (float((amounts / np.maximum(total, 1)).sum()) for amounts in held.values())
    return round(sum(shares), 9)
