"""A hold is capacity of nodes that is kept for a job: the only form in which capacity is kept.

A pod that exists, pinned or bound, claims for itself (core.ledger.claims) and needs no hold.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum

from kfext.core.ledger.claim import Claim


class HoldKind(StrEnum):
    """Why capacity is kept for a job.

    `PLAN`: its pods are to be created or bound there, by its plan.
    `RESERVATION`: it has waited longest, and other jobs must end first.
    `START`: its start was refused, and is tried again.
    `RESCUE`: running jobs are scaled down for it.
    `SIZE`: it is stopped for a new size.
    `MOVE`: it is stopped for a move, and may come back.
    `PREEMPT`: jobs of lower priority save their work and stop for it.
    """

    PLAN = "plan"
    RESERVATION = "reservation"
    START = "start"
    RESCUE = "rescue"
    SIZE = "size"
    MOVE = "move"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Capacity that is kept for a job.

    `job`: the uid of the job.
    `claims`: the claims on the ledger, by their keys; a pod takes over the claim of its plan.
    `until`: when it is expected to end, in epoch seconds; infinite if that is unknown.
    `waits_for`: the uids of the jobs that must end or stop first.
    """

    kind: HoldKind
    job: str
    claims: dict[Hashable, Claim]
    until: float = math.inf
    waits_for: tuple[str, ...] = ()
