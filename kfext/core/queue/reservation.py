"""Capacity reserved for a job until enough others have ended, and what is left for later jobs.

On each node, later jobs must leave free what the waiting job needs, less what the jobs it waits
for will free. All other capacity they may use meanwhile without delaying it.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from kfext.core.ledger.claim import Claim
from kfext.core.queue.kept import kept_of
from kfext.core.queue.leavers import Ends, leavers
from kfext.core.queue.occupants import Need, Occupants
from kfext.model.quantity import Resources


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


def kept_claims(job_uid: str, kept: Mapping[str, Resources]) -> Mapping[Hashable, Claim]:
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

    The jobs that it waits for have left then.
    """
    waits_for = leavers(on, needs, total=total, ends=ends)
    kept = {node: kept_of(on, node, need) for node, need in needs.items()}
    return Reservation(
        job_uid=job_uid,
        nodes=tuple(sorted(needs)),
        waits_for=tuple(sorted(waits_for)),
        until=max((ends.get(uid, math.inf) for uid in waits_for), default=math.inf),
        to_free=sum(on.size(uid, total) for uid in waits_for),
        claims=kept_claims(job_uid, kept),
    )
