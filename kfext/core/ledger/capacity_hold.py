"""A hold is capacity of nodes that is kept for a job; capacity is kept in no other form.

A pinned or bound pod has a claim of its own (core.ledger.claims) and needs no hold.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum

from kfext.core.ledger.claim import Claim


class HoldKind(StrEnum):
    """The purpose of a hold.

    `PLAN`: the pods of the job will be created or bound there, by its plan.
    `RESERVATION`: the job is first in the queue, and other jobs must end first.
    `START`: the API server refused the start of the job, which kfext tries again.
    `RESCUE`: running jobs are scaled down for the job.
    `SIZE`: the job is stopped for a new size.
    `MOVE`: the job is stopped for a move, and may return.
    `PREEMPT`: jobs of lower priority save their work and stop for the job.
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
    `claims`: its claims on the ledger, by key; a pod inherits the claim of its plan.
    `until`: the expected end of the hold, in epoch seconds; infinity means that it is unknown.
    `waits_for`: the uids of the jobs that must end or stop before the job can use the capacity.
    """

    kind: HoldKind
    job: str
    claims: dict[Hashable, Claim]
    until: float = math.inf
    waits_for: tuple[str, ...] = ()
