"""A job as the controller keeps it: what the API server says, and what goes on beside it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.core.ledger.claim import Claim
from kfext.core.queue.order import Turn
from kfext.model.job import TrainingJob
from kfext.model.plan import Plan
from kfext.model.state import JobState
from kfext.model.verdict import Verdict
from kfext.state.settings import JobSettings


@dataclass(slots=True)
class Entry:
    """A job and what the controller keeps beside it while it lives. Times are monotonic seconds.

    `assumed` is a plan that is being written to the job: it holds room until the answer is in.
    `phase` and `verdict` are what the TrainingPlan says; phase None for a job that is not ours.
    `ahead` is how many jobs it was told to come before it in the queue; `missing` counts the pods
    that the operator has yet to create under the plan.
    """

    raw: Mapping[str, Any]
    job: TrainingJob
    plan: Plan | None
    state: JobState
    assumed: Plan | None = None
    busy: bool = False
    failures: int = 0
    not_before: float = 0.0
    phase: str | None = None
    phase_since: float = 0.0
    verdict: Verdict | None = None
    turn: tuple[TrainingJob, int, Turn] | None = None
    ahead: int | None = None
    settings: tuple[int, TrainingJob, JobSettings] | None = None
    missing: int = 0
    marker: tuple[object, ...] = ()
    since: float = 0.0
    settled_at: float = 0.0
    hopeless_since: float | None = None
    gated: bool = False
    claimed: dict[Hashable, Claim] = field(default_factory=dict)

    @property
    def waiting(self) -> bool:
        """Whether the job waits for room: in the queue, or with pods behind the gate."""
        queued = self.job.suspend and self.job.held
        return (queued or self.gated) and not self.job.finished
