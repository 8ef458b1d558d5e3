"""All that the next step of a job depends on, the ledger apart."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from kfext.core.network.eligibility import HostNetworkRequest
from kfext.core.placement.limits import Limits, limits_of
from kfext.core.queue.quota import Demand
from kfext.core.queue.reservation import Reservation
from kfext.core.settings.resolve import Settings
from kfext.core.settings.values import Colocation
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.plan import Assignment, Plan
from kfext.model.pod import Pod
from kfext.model.policy import Placement
from kfext.model.quota import Quota

_FIRST_BACKOFF = 15.0
_LONGEST_BACKOFF = 300.0


@dataclass(frozen=True, slots=True)
class QuotaView:
    """What the quotas of a job's namespace know of: see core.queue.quota.shortage."""

    quotas: tuple[Quota, ...] = ()
    pending: Demand = field(default_factory=dict)
    default_class: str = ""
    defaulted: bool = True


@dataclass(frozen=True, slots=True)
class QueueContext:
    """What goes on around a job.

    `priority` is the job's, `preempts` whether kube-scheduler would evict lower ones for it.
    `reservation` is the room that is kept for `reserved_for`, until `awaited` have ended; `ahead`
    says that the job comes before that one in the queue, or is it. `crowded`: the operator has
    yet to create more pods than that, over all jobs, and so no more are planned; 0 if it has not.
    """

    priority: int = 0
    preempts: bool = False
    reservation: Reservation | None = None
    reserved_for: str = ""
    awaited: str = ""
    ahead: bool = False
    crowded: int = 0
    autoscaler: bool = False
    quota: QuotaView = field(default_factory=QuotaView)


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
    settings: Settings = field(default_factory=Settings)
    waited: float = 0.0
    quiet: float = 0.0
    settled: float = math.inf
    hopeless: float = 0.0
    context: QueueContext = field(default_factory=QueueContext)
    host_network: HostNetworkRequest | None = None

    @property
    def open_claims(self) -> tuple[Hashable, ...]:
        """The claims of a reservation that do not keep this job out."""
        kept = self.context.reservation
        if kept is None:
            return ()
        deadline = self.job.deadline
        ends = None if deadline is None else self.now + deadline
        # Who runs already goes first: its lost members must not wait for the queue.
        free = self.context.ahead or not self.job.suspend or kept.lets_in(ends)
        return tuple(kept.claims) if free else ()

    @property
    def in_line(self) -> float:
        """For how long the job has been in the queue this time."""
        return self.now - queued_since(self.job, self.state)

    @property
    def placement(self) -> Placement:
        """What the policy of the job's namespace says of its placement."""
        return self.settings.placement

    @property
    def never_released(self) -> bool:
        """Whether the job waits for its place for ever rather than to be released."""
        return self.settings.colocation is Colocation.REQUIRED

    @property
    def limits(self) -> Limits:
        """The limits within which the job is placed now."""
        return limits_of(self.settings, excluded=self.excluded)

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes that are out of the question now."""
        return self.state.excluded_at(self.now)

    @property
    def generation(self) -> int:
        """The number of the last plan of the job, 0 before the first."""
        return max(self.plan.generation if self.plan else 0, self.state.generation)

    def planned(self, assignment: Assignment, *, port: int, why: str) -> Plan:
        """Return the next plan of the job; `why` is the reason for it, in a sentence."""
        number = self.generation + 1
        return Plan(
            job_uid=self.job.uid, generation=number, assignment=assignment, port=port, why=why
        )

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


def queued_since(job: TrainingJob, state: JobState) -> float:
    """Return since when a job has been in the queue this time, in epoch seconds."""
    return max(job.created, state.suspended_at)
