"""What would become of a job on a snapshot: the queue is gone through as the controller does it.

It is the controller's own decisions on what the API server says; what the controller alone knows,
such as since when nothing has happened, counts as settled.
"""

from collections import Counter
from dataclasses import dataclass, replace

from kfext.core.ledger.claims import plan_claims, pod_claim, pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.queued import queued_step
from kfext.core.lifecycle.room import WAITS_FOR_ROOM
from kfext.core.lifecycle.situation import Allowance, Around, Situation
from kfext.core.lifecycle.steps import Start, Step, Wait
from kfext.core.network.eligibility import wish
from kfext.core.placement.gang import members_of
from kfext.core.queue.backfill import reserve
from kfext.core.queue.order import default_class, priority_class, turn
from kfext.core.queue.quota import demand
from kfext.core.queue.refusals import Refusals
from kfext.core.queue.reservation import Reservation
from kfext.core.settings.resolve import resolve
from kfext.core.words import listed
from kfext.model.charge import PodCharge
from kfext.model.job import TrainingJob
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan, decode_plan
from kfext.model.pod import Pod
from kfext.model.policy import policy_for
from kfext.model.snapshot import Snapshot
from kfext.model.state import decode_state
from kfext.names import MANAGED, PLAN, STATE


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next step of a job, and how many jobs are before it in the queue."""

    step: Step
    ahead: int


class _Queue:
    """One walk through the queue of a snapshot; what starts takes its room before the next."""

    def __init__(self, snapshot: Snapshot, *, now: float) -> None:
        self._snapshot = snapshot
        self._now = now
        self._refusals = Refusals()
        self._reservation: Reservation | None = None
        self._holder: TrainingJob | None = None
        self._pods: dict[str, list[Pod]] = {}
        self._started: list[TrainingJob] = []
        self._ledger = Ledger(snapshot.nodes)
        for pod in snapshot.pods:
            self._pods.setdefault(pod.owner_uid, []).append(pod)
            claim = pod_claim(pod)
            if claim is not None:
                self._ledger.claim(pod_key(pod.uid), claim)
        for job in snapshot.jobs:
            self._take(job, decode_plan(job.annotations.get(PLAN), job_uid=job.uid))

    def decide(self, job: TrainingJob) -> Step:
        """Return the next step of a waiting job, and let it take what it will."""
        situation = self._situation(job)
        step = queued_step(situation, self._ledger, self._refusals)
        if isinstance(step, Start):
            self._take(replace(job, suspend=False), step.plan)
        elif isinstance(step, Wait) and step.verdict and self._reservation is None:
            due = situation.in_line >= situation.placement.reserve_after
            if due and step.verdict.reason in WAITS_FOR_ROOM:
                self._keep_room(situation)
        return step

    def _take(self, job: TrainingJob, plan: Plan | None) -> None:
        claims = plan_claims(job, plan, self._pods.get(job.uid, ()))
        if claims:
            self._started.append(job)
        for key, claim in claims.items():
            self._ledger.claim(key, claim)

    def _keep_room(self, situation: Situation) -> None:
        job = situation.job
        found = reserve(
            job.uid,
            members_of(job),
            self._ledger,
            ends={one.uid: one.ends for one in self._snapshot.jobs if one.ends is not None},
            one_node=situation.one_node,
            excluded=situation.excluded,
        )
        if found is not None:
            self._reservation, self._holder = found, job
            for key, claim in found.claims.items():
                self._ledger.claim(key, claim)

    def _situation(self, job: TrainingJob) -> Situation:
        snapshot = self._snapshot
        namespace = snapshot.namespaces.get(job.namespace, Namespace(job.namespace))
        policy = policy_for(snapshot.policies, namespace.labels)
        settings = resolve(job.annotations, namespace.annotations, policy)
        return Situation(
            job=job,
            pods=tuple(self._pods.get(job.uid, ())),
            plan=None,
            state=decode_state(job.annotations.get(STATE)),
            now=self._now,
            placement=policy.placement,
            colocation=settings.colocation,
            elastic=settings.elastic,
            managed=namespace.labels.get(MANAGED) == "true",
            host_network=wish(
                job,
                settings,
                namespace_labels=namespace.labels,
                network=policy.network,
                network_policies=[
                    one for one in snapshot.network_policies if one.namespace == job.namespace
                ],
            ),
            around=self._around(job),
        )

    def _around(self, job: TrainingJob) -> Around:
        own = priority_class(job, self._snapshot.classes)
        holder, kept = self._holder, self._reservation
        by_uid = {one.uid: one for one in self._snapshot.jobs}
        awaited = [by_uid[uid] for uid in (kept.waits_for if kept else ()) if uid in by_uid]
        return Around(
            priority=own.value,
            preempts=own.preempts,
            reservation=kept,
            reserved_for=holder.title if holder else "",
            awaited=listed(sorted(one.title for one in awaited), of="jobs"),
            autoscaler=self._snapshot.autoscaler,
            allowance=self._allowance(job),
        )

    def _allowance(self, job: TrainingJob) -> Allowance:
        snapshot = self._snapshot
        pending: Counter[PodCharge] = Counter()
        for started in self._started:
            if started.namespace == job.namespace:
                pending += demand(started, self._pods.get(started.uid, ()))
        return Allowance(
            quotas=tuple(one for one in snapshot.quotas if one.namespace == job.namespace),
            pending=pending,
            default_class=default_class(snapshot.classes).name,
            defaulted=job.namespace in snapshot.limit_ranges,
        )


def outlook(snapshot: Snapshot, uid: str, *, now: float) -> Outlook:
    """Return what would become of a job of the snapshot that kfext holds; `now` in epoch seconds.

    Raises KeyError if there is no such job.
    """
    waiting = [job for job in snapshot.jobs if job.uid == uid or _waits(job)]
    queue, ahead = _Queue(snapshot, now=now), 0
    for job in sorted(waiting, key=lambda job: turn(job, snapshot.classes)):
        step = queue.decide(job)
        if job.uid == uid:
            return Outlook(step, ahead)
        ahead += isinstance(step, Wait)
    raise KeyError(uid)


def _waits(job: TrainingJob) -> bool:
    ours = job.suspend and job.held and not job.kueue_managed
    return ours and not (job.finished or job.deleting or job.released)
