"""The facts on which the next step of a job depends, except the ledger."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kfext.core.elastic import allowed_range, fewest_workers, workers_of
from kfext.core.eligibility import LeftToOthers
from kfext.core.placement.gang import Limits, limits_of
from kfext.core.queue.duration import USUAL_SECONDS, late_after
from kfext.core.queue.quota import QuotaView
from kfext.core.queue.reservation import Reservation
from kfext.core.settings.table import SHARES_GPUS, Settings
from kfext.model.backoff import exponential_backoff
from kfext.model.gpu import Place
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.network_policy import NetworkPolicy
from kfext.model.parameters import NewNodes, Placement
from kfext.model.plan import LARGEST_GENERATION, NO_SLOTS, Assignment, Plan, Slots, shares_gpus
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.quantity import Resources
from kfext.model.shared_gpu import CardSharer, SharedGpu
from kfext.model.timestamps import past, seconds_until, written_time
from kfext.model.verdict import Verdict

_FIRST_BACKOFF, _LONGEST_BACKOFF = 15.0, 300.0  # seconds


@dataclass(frozen=True, slots=True)
class NodeView:
    """The ask of a job for new nodes, and its progress; see core.lifecycle.new_nodes.

    `possible`: whether kfext can ask an autoscaler for nodes.
    `turn`: returns a clause about the asks of other jobs that come first, or an empty string.
    `wanted`: the number of pods in the open ask of the job.
    `bound`: the number of these pods with capacity.
    `came`: the number of nodes with this capacity that joined since the ask began.
    `progressed_at`: when `bound` or `came` last grew, in epoch seconds.
    `refused`: the API server's refusal of the placeholders, or an empty string.
    `claims`: the claims of placeholders that do not count for the job: its own, and the claims of
        jobs behind it in the queue.
    `awaited`: the new nodes that the job must not use yet.
    `held`: while its ask is incomplete, the capacity of each new node that placeholders hold for
        it; it may not use more there.
    """

    possible: bool = False
    turn: Callable[[], str] = field(default=str, compare=False)
    wanted: int = 0
    bound: int = 0
    came: int = 0
    progressed_at: float = 0.0
    refused: str = ""
    claims: tuple[Hashable, ...] = ()
    awaited: frozenset[str] = frozenset()
    held: Mapping[str, Resources] | None = None


NO_NODES = NodeView()
"""The view of a job in a cluster that has no autoscaler."""


@dataclass(frozen=True, slots=True)
class QueueContext:
    """The surroundings of a job in the queue and the cluster.

    `priority`: the lowest priority of its pods.
    `preempts`: whether kube-scheduler would evict pods of lower priority for all of them.
    `reservation`: the capacity that is reserved for the job `reserved_for`, if any.
    `awaited`: the names of the jobs that must end before `reserved_for` can start.
    `estimated`: whether the last of these ends is estimated from progress, not from a deadline.
    `reservable_in`: the seconds until the job itself may have a reservation.
    `may_use_reserved`: whether the job is `reserved_for`, or precedes it in the queue.
    `crowded`: the limit on pods that the operator has yet to create, over all jobs, while they
        exceed it, so that no job is started; otherwise 0.
    `draining`: whether a node is drained and may return later.
    `autoscaler`: whether the cluster has an autoscaler.
    `nodes`: the nodes that the autoscaler may add.
    `held`: the claims of the hold for its start, a rescue or a change; only this job may use them.
    `quota`: the quotas of the namespace.
    `disturbed`: what may disturb a plan: `pods` that a scheduler may bind to any node, or
        a `quota` or LimitRange of the namespace; empty if kfext alone decides.
    `plain_pods`: the number of unbound pods of jobs that kfext does not place.
    `duration`: returns the expected duration of the job with all its workers, in seconds.
    `typical`: returns the duration of the ended jobs of its series in seconds, or None.
    `ends`: returns the expected ends of running jobs by uid, in epoch seconds.
    """

    priority: int = 0
    preempts: bool = False
    reservation: Reservation | None = None
    reserved_for: str = ""
    awaited: str = ""
    estimated: bool = False
    reservable_in: float = 0.0
    may_use_reserved: bool = False
    crowded: int = 0
    draining: bool = False
    autoscaler: bool = False
    nodes: NodeView = NO_NODES
    held: tuple[Hashable, ...] = ()
    quota: QuotaView = field(default_factory=QuotaView)
    disturbed: str = "pods"
    plain_pods: int = 0
    duration: Callable[[], float] = field(default=lambda: USUAL_SECONDS, compare=False)
    typical: Callable[[], float | None] = field(default=lambda: None, compare=False)
    ends: Callable[[], Mapping[str, float]] = field(default=dict, compare=False)


@dataclass(frozen=True, slots=True)
class HostNetworkRequest:
    """A job's request for the host network.

    `ports`: the first and the last port that jobs may use.
    `interfaces`: the network interfaces for training traffic.
    `obstacle`: the obstacle to the host network, empty if none is known.
    `policies`: the NetworkPolicies of its namespace; some may apply to its pods.
    """

    ports: tuple[int, int]
    interfaces: tuple[str, ...] = ()
    obstacle: str = ""
    policies: tuple[NetworkPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A permanent refusal of a step: the API server's answer, and the seconds to the next try."""

    message: str
    again: float


@dataclass(frozen=True, slots=True)
class CardView:
    """The slots in which a job has its GPU shares.

    `unready`: the slots without a reserved GPU that the agent has reported.
    `lost`: the slots with an unhealthy GPU, or with a GPU that is not the job's.
    `troubles`: the reason for each unhealthy slot.
    `evicted`: the slots that the job must leave, because a job there loses too much.
    `rivals`: the uids of the high-priority jobs in the evicted slots.
    `shunned`: the slots of jobs that this job had to leave, or that had to leave this job.
    `parts`: the slots with pods of the job that agents have reported, each with its pod.
    """

    unready: tuple[Place, ...] = ()
    lost: tuple[Place, ...] = ()
    troubles: Mapping[Place, str] = field(default_factory=dict)
    evicted: tuple[Place, ...] = ()
    rivals: tuple[str, ...] = ()
    shunned: tuple[Place, ...] = ()
    parts: tuple[tuple[SharedGpu, CardSharer], ...] = ()


@dataclass(frozen=True, slots=True)
class Clocks:
    """The times since events of a job, in seconds.

    `waited`: the time since the last progress of the job.
    `quiet`: the time since the operator created a pod of this job, or of a gang before it.
    `unbound`: the time since each pod without a node was gated or ungated, by its uid.
    `unreserved`: the time since each slot of the job lost its reserved GPU, by slot.
    `settled`: the time since the job's set of pods last changed.
    `never_fits`: the time since kfext found that the job would not fit even the empty cluster.
    """

    waited: float = 0.0
    quiet: float = 0.0
    unbound: Mapping[str, float] = field(default_factory=dict)
    unreserved: Mapping[Place, float] = field(default_factory=dict)
    settled: float = math.inf
    never_fits: float = 0.0

    def longest_wait(self, pods: Iterable[Pod]) -> float:
        """Return the longest wait for a node among some pods."""
        return max((self.unbound.get(pod.uid, 0.0) for pod in pods), default=0.0)


@dataclass(frozen=True, slots=True)
class Situation:
    """A job, its pods, and kfext's memory of them.

    `pods`: the pods of the job's uid, including terminating pods.
    `now`: the time, in epoch seconds.
    `host_network`: the request for the host network, if any.
    `succeeded`: the replicas with a pod that succeeded and was deleted since the gang started.
    `refused`: the steps that must not be tried now, by the name of their class.
    `failed_on`: the nodes where it failed at its start under its present plan.
    `blamed`: the nodes of `failed_on` where a replica failed twice: members that run there do not
        excuse the node.
    `doubted`: the nodes of `failed_on`, the nodes of earlier such plans, and the suspect nodes.
    """

    job: TrainingJob
    pods: tuple[Pod, ...]
    plan: Plan | None
    state: JobState
    now: float
    settings: Settings = field(default_factory=Settings)
    clocks: Clocks = field(default_factory=Clocks)
    context: QueueContext = field(default_factory=QueueContext)
    host_network: HostNetworkRequest | None = None
    succeeded: frozenset[ReplicaKey] = frozenset()
    refused: Mapping[str, Refused] = field(default_factory=dict)
    cards: CardView = field(default_factory=CardView)
    failed_on: frozenset[str] = frozenset()
    blamed: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()

    @property
    def usable_claims(self) -> tuple[Hashable, ...]:
        """The claims that this job may ignore: its hold, placeholders, perhaps a reservation."""
        reservation, held = self.context.reservation, self.context.held + self.context.nodes.claims
        if reservation is None:
            return held
        # A running job precedes the queue: its lost members must not wait for other jobs.
        usable = self.context.may_use_reserved or not self.job.suspend
        usable = usable or reservation.admits_backfill(self.now + self._longest)
        return (*held, *reservation.claims) if usable else held

    @property
    def _longest(self) -> float:
        """The longest duration of the job in seconds if it starts now, infinite if unknown."""
        deadline, typical = self.job.deadline, self.context.typical()
        return min(
            math.inf if deadline is None else deadline,
            math.inf if typical is None else late_after(typical),
        )

    @property
    def fewest_workers(self) -> int:
        """The smallest number of workers that the job may start with."""
        if self.settings.elastic is None:
            return workers_of(self.job)
        return fewest_workers(self.job, allowed_range(self.job, self.settings))

    @property
    def behind_gate(self) -> tuple[Pod, ...]:
        """The gated pods that are not being deleted."""
        return tuple(pod for pod in self.pods if pod.behind_gate)

    @property
    def in_line(self) -> float:
        """The seconds in the queue since the job last ran."""
        since = queued_since(self.job, self.state, now=self.now)
        return self.now - since if since else self.clocks.waited

    @property
    def placement(self) -> Placement:
        """The placement parameters in the policy of the job's namespace."""
        return self.settings.placement

    @property
    def never_released(self) -> bool:
        """Whether the job waits for capacity without limit instead of being released."""
        return bool(self.why_never_released)

    @property
    def why_never_released(self) -> str:
        """A clause about the setting or share that prevents a release, or an empty string."""
        return self.settings.why_never_released or (SHARES_GPUS if self.job.shares_gpus else "")

    def releases(self, why: Verdict) -> bool:
        """Return whether a job that kfext must not place runs as on plain Kubernetes."""
        return not self.never_released or (isinstance(why, LeftToOthers) and not self.shares_gpus)

    @property
    def shares_gpus(self) -> bool:
        """Whether GPU sharing concerns the job."""
        return shares_gpus(self.job, self.plan)

    @property
    def has_open_ask(self) -> bool:
        """Whether the job has asked an autoscaler for nodes, and waits for them."""
        return self.state.ask is not None and self.state.ask.is_open

    @property
    def released_for_nodes(self) -> bool:
        """Whether a job that lacks nodes is released, so that an autoscaler sees its pods."""
        choice, context = self.placement.new_nodes, self.context
        cannot = choice is NewNodes.ASK and not context.nodes.possible
        return context.autoscaler and (choice is NewNodes.RELEASE or cannot)

    @property
    def may_ask(self) -> bool:
        """Whether kfext may ask an autoscaler for nodes for the job.

        Kueue decides on the nodes of the jobs that it starts. The GPU of a new node can be shared
        only once the agent has seen it.
        """
        possible = self.context.autoscaler and self.context.nodes.possible
        wanted = self.placement.new_nodes is NewNodes.ASK
        return possible and wanted and not (self.shares_gpus or self.job.started_by)

    @property
    def expects_nodes(self) -> bool:
        """Whether the job has asked an autoscaler for nodes, or may ask now."""
        ask = self.state.ask
        return self.may_ask and (ask is None or ask.is_open or ask.again_at <= self.now)

    @property
    def forming(self) -> bool:
        """Whether kfext has started the job, and its gang has not been whole since.

        The start records its time in the queue, which is deleted once all its pods are bound.
        """
        return forming(self.job, self.plan, self.state)

    @property
    def limits(self) -> Limits:
        """The limits within which the job is placed now."""
        closed, awaited = self.cards.shunned, self.context.nodes.awaited
        return limits_of(
            self.settings,
            excluded=self.excluded,
            doubted=self.doubted,
            closed=closed,
            awaited=awaited,
        )

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes that are excluded for the job now."""
        return self.state.excluded_nodes(self.now)

    @property
    def restricted(self) -> bool:
        """Whether the job may not use some nodes for now, so that it might fit later."""
        return bool(self.excluded or self.context.nodes.awaited or self.context.draining)

    @property
    def backs_off(self) -> float:
        """The seconds until the job's back-off ends."""
        return seconds_until(self.state.retry_at, now=self.now, longest=_LONGEST_BACKOFF)

    @property
    def generation(self) -> int:
        """The number of the last plan of the job, 0 before the first plan."""
        return generation_of(self.plan, self.state)

    def planned(
        self, assignment: Assignment, *, port: int, why: str, slots: Slots = NO_SLOTS
    ) -> Plan:
        """Return the next plan of the job; `why` is its reason, as a sentence."""
        job = self.job
        plan = next_plan(
            self.plan, self.state, assignment, job_uid=job.uid, port=port, why=why, now=self.now
        )
        shares = ((group.type.lower(), group.share) for group in job.groups if group.share)
        promised = {type_: replace(share, busy=None) for type_, share in shares}
        return replace(plan, shares=promised, slots=slots)

    def after_strike(self, reason: str, message: str) -> JobState:
        """Return the state after a failed placement, with a longer back-off each time."""
        strikes = self.state.strikes + 1
        backoff = exponential_backoff(strikes, first=_FIRST_BACKOFF, longest=_LONGEST_BACKOFF)
        return replace(
            self.state, strikes=strikes, retry_at=self.now + backoff, reason=reason, message=message
        )


def forming(job: TrainingJob, plan: Plan | None, state: JobState) -> bool:
    """Return whether kfext has started a job, and its gang has not been whole since."""
    if plan is None or job.suspend or job.started_by:
        return False
    return job.being_created or state.queued_since > 0


def generation_of(plan: Plan | None, state: JobState) -> int:
    """Return the number of the last plan of a job, 0 before the first plan."""
    return max(plan.generation if plan else 0, state.generation)


def next_plan(
    plan: Plan | None,
    state: JobState,
    assignment: Assignment,
    *,
    job_uid: str,
    port: int,
    why: str,
    now: float,
) -> Plan:
    """Return the next plan of a job.

    `why` is recorded with the time `now`, in epoch seconds, because the condition shows it for a
    long time.
    """
    why = f"{written_time(now)}: {why}"
    number = generation_of(plan, state) % LARGEST_GENERATION + 1
    return Plan(job_uid=job_uid, generation=number, assignment=assignment, port=port, why=why)


def queued_since(job: TrainingJob, state: JobState, *, now: float) -> float:
    """Return the time when a job entered the queue, in epoch seconds, or 0.0 if unknown.

    The time in the queue ends only when all pods are bound, not at the start. If the clock of the
    suspension was ahead, the operator's time of the suspension counts.
    """
    if since := past(state.queued_since, now=now):
        return since
    stopped = past(state.suspended_at, now=now)
    if state.suspended_at and not stopped and (seen := job.conditions.get("Suspended")):
        stopped = past(seen.since, now=now)
    return max(past(job.created, now=now), stopped)
