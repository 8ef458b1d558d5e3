"""All that the next step of a job depends on, the ledger apart."""

import math
from dataclasses import dataclass, field, replace

from kfext.model.job import TrainingJob
from kfext.model.plan import Assignment, Plan
from kfext.model.pod import Pod
from kfext.model.policy import Placement
from kfext.model.state import JobState

_FIRST_BACKOFF = 15.0
_LONGEST_BACKOFF = 300.0


@dataclass(frozen=True, slots=True)
class Situation:
    """A job, its pods, and what kfext remembers of them.

    `pods` are those of the job's uid, terminating ones included. Times are in seconds: `now`
    since the epoch; `waited` since the job last made progress; `quiet` since the operator last
    created a pod of any managed job; `settled` since the job's set of pods last changed;
    `hopeless` since it is known that not even the empty cluster would hold the job.
    """

    job: TrainingJob
    pods: tuple[Pod, ...]
    plan: Plan | None
    state: JobState
    now: float
    placement: Placement = field(default_factory=Placement)
    colocation: str = "preferred"
    managed: bool = True
    waited: float = 0.0
    quiet: float = 0.0
    settled: float = math.inf
    hopeless: float = 0.0

    @property
    def one_node(self) -> bool:
        """Whether only a single node will do."""
        return self.colocation == "required"

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes that are out of the question now."""
        return tuple(node for node, until in self.state.excluded.items() if until > self.now)

    def planned(self, assignment: Assignment) -> Plan:
        """Return the next plan of the job."""
        generation = self.plan.generation + 1 if self.plan else 1
        return Plan(job_uid=self.job.uid, generation=generation, assignment=assignment)

    def after_strike(self, reason: str, message: str) -> JobState:
        """Return the state after a placement that was not carried out: back off, ever longer."""
        strikes = self.state.strikes + 1
        backoff = min(_FIRST_BACKOFF * 2 ** (strikes - 1), _LONGEST_BACKOFF)
        return replace(
            self.state,
            strikes=strikes,
            retry_at=self.now + backoff,
            reason=reason,
            message=message,
        )
