"""The mirror of the cluster: jobs, pods and the ledger, as last seen.

Everything here can be rebuilt from the API server. The answer to a write of kfext is observed like
a watch event, so that the next decision is not based on outdated objects. The mirror has no clock:
`settle` sets the time, and everything seen since the last call counts as seen at that time.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from kfext.core.ledger.cards import as_sharing
from kfext.core.observed import as_observed
from kfext.core.patches.basis import basis
from kfext.core.queue.priority import lowest_class, priority_class
from kfext.model.job import TrainingJob, parse_job
from kfext.model.job_state import state_of
from kfext.model.node import Node
from kfext.model.plan import plan_of, shares_gpus
from kfext.model.pod import Pod
from kfext.model.priority import PriorityClass
from kfext.model.rendered import Rendered, as_rendered, rendered_key, with_job_uid
from kfext.model.shared_gpu import SharedGpu
from kfext.model.tolerant import mapping, text
from kfext.state.mirror.cards import with_slots_in_use
from kfext.state.mirror.claim_tracker import ClaimTracker
from kfext.state.mirror.members import Members
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.mirror.volumes import ClaimKey, Volumes, claims_of

PLAIN_SECONDS = 30.0
"""The pods of a job on plain Kubernetes count for this long after its last progress: the operator
creates them within seconds, or never."""
_MAX_REMEMBERED = 10_000
"""The most uids of deleted jobs, or of rendered objects, that are remembered: the answer to a write
may come seconds after the deletion."""


def _idle() -> None:
    """Do nothing: the driver polls."""


WaitingJobs = tuple[str, str]
"""The namespace of waiting jobs, and the reason why they wait; an empty string means any."""
ANY: WaitingJobs = ("", "")


@dataclass(frozen=True, slots=True)
class Offer:
    """The changes that may help waiting jobs.

    `rows`: the rows of the ledger on which capacity became free.
    `retried`: the waiting jobs to decide on again even if these rows do not help them.
    """

    rows: Sequence[int]
    retried: frozenset[WaitingJobs]

    def retries(self, tracked: TrackedJob) -> bool:
        """Return whether a job is one of the retried jobs."""
        reason = tracked.verdict.reason if tracked.verdict else ""
        reasons = ("", reason, tracked.not_started_reason)
        return not self.retried.isdisjoint(product(("", tracked.job.namespace), reasons))


class Cluster:
    """The mirror of jobs, pods and nodes.

    `jobs`: the jobs by uid. `classes`: the PriorityClasses by name.
    `changed`: the uids of jobs to decide on again.
    `claim_tracker`: the claims of the jobs. `ledger`: the nodes and all claims on them. `holds`:
        the capacity on hold. `backlog`: the pods that the operator still has to create.
    `volumes`: the volume claims and their volumes.
    `ends_version`: how often a deadline of a job has changed.
    `draining`: `Node.drain` of each node that is being drained, by the name of the node.
    `plain_pods`: the number of pods that plain Kubernetes is about to place for jobs.
    `failed`: the failed pods of jobs; the reader empties the list.

    `managed` returns whether a namespace is managed; elsewhere plans are ignored.
    `wake` is called when there is something to decide.
    """

    def __init__(
        self,
        *,
        wake: Callable[[], None] = _idle,
        managed: Callable[[str], bool] = lambda namespace: True,
    ) -> None:
        self.jobs: dict[str, TrackedJob] = {}
        self.classes: dict[str, PriorityClass] = {}
        self.changed: set[str] = set()
        self.draining: dict[str, str] = {}
        self.volumes = Volumes(self._mark_volume_claim)
        self.ends_version = 0
        self.plain_pods = 0
        self.failed: list[Pod] = []
        self._members = Members()
        self._jobs_by_volume_claim: dict[ClaimKey, set[str]] = {}
        self._stale_volumes: set[str] = set()
        self.claim_tracker = ClaimTracker(
            self.jobs,
            self._members,
            class_of=lambda job: lowest_class(job, self.classes),
            managed=managed,
            freed=wake,
            retry=self.mark_queue,
            changed=self._mark_again,
        )
        self.ledger, self.backlog = self.claim_tracker.ledger, self.claim_tracker.backlog
        self.holds = self.claim_tracker.holds
        self._rendered: dict[tuple[str, str, str], Rendered] = {}
        self._job_of: dict[str, str] = {}  # the uid of the job of each rendered object
        self._deleted_rendered: dict[str, None] = {}
        self._deleted_jobs: dict[str, None] = {}
        self._stale_claims: dict[str, TrackedJob] = {}
        self._stale_clocks: dict[str, TrackedJob] = {}
        self._unsettled_jobs: set[str] = set()
        self._enlarged_jobs: set[str] = set()
        self._retried: set[WaitingJobs] = set()
        self._jobs_per_namespace: Counter[str] = Counter()
        self.wake = wake
        self._managed = managed

    def pods(self, job_uid: str) -> tuple[Pod, ...]:
        """Return the pods that the job controls, including terminating pods."""
        tracked = self.jobs.get(job_uid)
        return self._members.pods_of(job_uid, namespace=tracked.job.namespace) if tracked else ()

    def members(self) -> tuple[Pod, ...]:
        """Return the pods of all jobs."""
        return self._members.all()

    def homes(self, job_uid: str) -> Mapping[str, int]:
        """Return the number of bound pods of a job by node, in the order of node names."""
        bound = (pod for pod in self.pods(job_uid) if pod.node_name and not pod.deleting)
        return dict(sorted(Counter(pod.node_name for pod in bound).items()))

    def count(self, phase: str) -> int:
        """Return the number of jobs that were last seen in a phase."""
        return sum(tracked.phase == phase for tracked in self.jobs.values())

    def priority(self, job: TrainingJob) -> int:
        """Return the priority that the pods of a job will have."""
        return priority_class(job, self.classes).value

    def mark(self, job_uid: str) -> None:
        """Mark a job to be decided on again."""
        self.changed.add(job_uid)
        self.wake()

    def mark_queue(self, namespace: str = "", stopped_by: str = "") -> None:
        """Mark waiting jobs for the next `offer`, by namespace and reason; by default all jobs."""
        if not namespace or namespace in self._jobs_per_namespace:
            self._retried.add((namespace, stopped_by))
            self.wake()

    def offer(self) -> Offer:
        """Return the changes since the last call that may help waiting jobs."""
        retried, self._retried = self._retried, set()
        self.backlog.offer()
        return Offer(self.ledger.offer(), frozenset(retried))

    # --- changes from the watches ---------------------------------------------------------------

    def observe_job(self, raw: Mapping[str, Any]) -> None:
        """Record the present version of a job; a version that is not newer is ignored."""
        metadata = mapping(raw.get("metadata"))
        tracked = self.jobs.get(text(metadata.get("uid")))
        if tracked is not None and not is_newer(text(metadata.get("resourceVersion")), tracked.job):
            return
        job = parse_job(raw)
        if job is None or not job.uid:
            return
        if job.kind.rendered and (rendered := self._rendered.get(rendered_key(job))):
            job = as_rendered(job, rendered)
        self.record_job(job, basis(raw, job))

    def record_job(self, job: TrainingJob, raw: Mapping[str, Any]) -> None:
        """Record a parsed job; `raw` is the JSON object that its patches apply to.

        The recorded job has its replicas as admission changes them, if kfext has seen their pods.
        """
        if job.uid in self._deleted_jobs:
            return
        job = self.volumes.of_job(job)
        plan = plan_of(job)
        state = state_of(job)
        job = as_observed(job, state)
        if shares_gpus(job, plan):
            job = as_sharing(job, plan, busy=state.busy)
        tracked = self.jobs.get(job.uid)
        before = frozenset() if tracked is None else claims_of(tracked.job)
        if tracked is None:
            tracked = self.jobs[job.uid] = TrackedJob(raw, job, plan, state)
            self._unsettled_jobs.add(job.uid)
            self._jobs_per_namespace[job.namespace] += 1
        else:
            if tracked.job.ends != job.ends:
                self.ends_version += 1
            if needs_more(job, than=tracked.job):
                self._enlarged_jobs.add(job.uid)
            tracked.update(raw, job, plan, state)
        self._index_volume_claims(job.uid, before=before, now=claims_of(job))
        self.sync_claims(tracked)
        self.mark(job.uid)

    def observe_rendered(self, old: Rendered | None, new: Rendered | None) -> None:
        """Record the object that an operator rendered of a job; `new` is None when it is gone.

        The pods name that object, not the job, as their owner. The job keeps the object's templates
        until the operator renders a new object.
        """
        if new is None:
            if old is not None:
                self._forget_rendered(old)
            return
        tracked = self.jobs.get(new.job_uid)
        self._rendered[new.key] = new
        if tracked is not None and new.belongs_to(tracked.job):
            self.record_job(as_rendered(tracked.job, new), tracked.raw)
        self._job_of[new.uid] = new.job_uid
        for pod in self._members.pods_of(new.uid, namespace=new.namespace):
            self._members.remove(pod)
            self.observe_pod(None, pod)

    def _forget_rendered(self, old: Rendered) -> None:
        """Forget a rendered object that is gone, but not yet its job: its pods may outlive it."""
        if (last := self._rendered.get(old.key)) is not None and last.uid == old.uid:
            del self._rendered[old.key]
        self._deleted_rendered[old.uid] = None
        if len(self._deleted_rendered) > _MAX_REMEMBERED:
            first = next(iter(self._deleted_rendered))
            del self._deleted_rendered[first]
            self._job_of.pop(first, None)

    def forget_job(self, uid: str) -> None:
        """Forget a job that is gone; late answers to writes of kfext are ignored."""
        self._deleted_jobs[uid] = None
        if len(self._deleted_jobs) > _MAX_REMEMBERED:
            del self._deleted_jobs[next(iter(self._deleted_jobs))]
        tracked = self.jobs.pop(uid, None)
        if tracked is None:
            return
        self._jobs_per_namespace -= Counter([tracked.job.namespace])
        for marked in (self._stale_claims, self._stale_clocks):
            marked.pop(uid, None)
        self._unsettled_jobs.discard(uid)
        self._index_volume_claims(uid, before=claims_of(tracked.job), now=frozenset())
        self.claim_tracker.forget(
            tracked, self._members.pods_of(uid, namespace=tracked.job.namespace)
        )
        self.mark(uid)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Record the present version of a pod; `new` is None when the pod is gone."""
        old, new = self._of_job(old), self._of_job(new)
        pod = new or old
        if pod is None:
            return
        prior = self._members.known(pod)
        if new and prior and is_older(new.resource_version, prior.resource_version):
            return
        if old and old.owner_uid != pod.owner_uid:
            self._members.remove(old)
        elif old and new and pod.owner_uid and not prior:
            return  # the pod is gone, and this is the late answer to a write of kfext
        self.claim_tracker.observe_pod(pod.uid, new)
        if pod.owner_uid:
            self._observe_member(pod, prior=prior, gone=new is None)

    def _of_job(self, pod: Pod | None) -> Pod | None:
        return with_job_uid(pod, self._job_of.get(pod.owner_uid)) if pod and self._job_of else pod

    def _observe_member(self, pod: Pod, *, prior: Pod | None, gone: bool) -> None:
        first = prior is None
        if gone:
            self._members.remove(pod)
        else:
            self._members.put(pod)
        tracked = self.claim_tracker.owner(pod)
        succeeded = prior and prior.phase == "Succeeded" and not prior.deleting
        if succeeded and (gone or pod.deleting) and tracked is not None and pod.replica:
            tracked.succeeded.add(pod.replica)  # the gang does not need a replacement
        fails = pod.phase == "Failed" and not (gone or pod.deleting or tracked is None)
        if fails and (prior is None or not prior.finished):
            self.failed.append(pod)
        if prior is not None and not gone and place_of(prior) == place_of(pod):
            return  # the kubelet's status updates do not affect placement
        if tracked is not None:
            if first and not gone:
                self.backlog.record_created(pod.owner_uid, pod.replica)
            if first or gone:
                self._unsettled_jobs.add(pod.owner_uid)
            self.claim_tracker.hand_over(tracked, pod)
            # While a step pins the pods of a job, its claims are updated once, at the end.
            if first or gone or not tracked.busy or tracked.executor_condition:
                self._stale_claims[pod.owner_uid] = tracked
            self.mark(pod.owner_uid)

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """Record the present version of a node; `new` is None when the node is gone."""
        self._observe_drain(old, new)
        if new is not None:
            if self.ledger.row(new.name) is None:
                self._update_claims_on(new.name)
            gains = self.ledger.gains
            cards = self.claim_tracker.cards
            self.ledger.set_node(cards.with_cards(new) if new.name in cards.slots else new)
            self.claim_tracker.observe_node(new.name)
            if self.ledger.gains != gains:
                self.mark_queue()
        elif old is not None:
            self._update_claims_on(old.name)
            self.ledger.remove_node(old.name)
            self.claim_tracker.observe_node(old.name)
            self.mark_queue()  # jobs may now wait for another reason

    def _observe_drain(self, old: Node | None, new: Node | None) -> None:
        known = dict(self.draining)
        if (seen := new or old) is not None:
            self.draining.pop(seen.name, None)
        if new is not None and new.drain is not None:
            self.draining[new.name] = new.drain
        if self.draining != known:
            self.wake()

    def observe_card(self, old: SharedGpu | None, new: SharedGpu | None) -> None:
        """Record the present version of a slot; `new` is None when the slot is gone."""
        self.claim_tracker.cards.observe(old, new)
        for seen in filter(None, (old, new)):
            node = self.ledger.node(seen.node)
            if node is not None and (changed := self.claim_tracker.cards.with_cards(node)) != node:
                self.ledger.set_node(changed)
                self.mark_queue()

    def _mark_again(self, job_uid: str) -> None:
        """Mark a job after a change of a GPU that it shares or of its placeholders."""
        if (tracked := self.jobs.get(job_uid)) is not None:
            self._stale_clocks[job_uid] = tracked
        self.mark(job_uid)

    def _index_volume_claims(
        self, job_uid: str, *, before: frozenset[ClaimKey], now: frozenset[ClaimKey]
    ) -> None:
        """Update the index of jobs by volume claim: a job used the claims `before`, and `now`."""
        self._stale_volumes.discard(job_uid)
        for key in now - before:
            self._jobs_by_volume_claim.setdefault(key, set()).add(job_uid)
        for key in before - now:
            jobs = self._jobs_by_volume_claim.get(key, set())
            jobs.discard(job_uid)
            if not jobs:
                self._jobs_by_volume_claim.pop(key, None)

    def _mark_volume_claim(self, key: ClaimKey) -> None:
        """Mark the jobs that use a volume claim with changed constraints."""
        if jobs := self._jobs_by_volume_claim.get(key):
            self._stale_volumes |= jobs
            self.changed |= jobs
            self.wake()

    def refresh_volumes(self, tracked: TrackedJob) -> None:
        """Update the constraints of a job's volume claims, before a decision on the job.

        This takes milliseconds for a job with hundreds of claims, so events do not do it.
        """
        if tracked.job.uid in self._stale_volumes:
            self._stale_volumes.discard(tracked.job.uid)
            tracked.job = self.volumes.of_job(tracked.job)

    def observe_class(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        """Record the present version of a PriorityClass; `new` is None when it is gone.

        The claims of plans have a priority, so they are updated.
        """
        if old is not None:
            self.classes.pop(old.name, None)
        if new is not None:
            self.classes[new.name] = new
        self._stale_claims |= {
            uid: tracked for uid, tracked in self.jobs.items() if self.holds.plan(uid)
        }

    def update_namespace(self, namespace: str) -> None:
        """Update the claims of a namespace that has become managed or unmanaged."""
        inside = {
            uid: tracked for uid, tracked in self.jobs.items() if tracked.job.namespace == namespace
        }
        if inside:
            self._stale_claims |= inside
            self.changed.update(inside)
            self.wake()

    def _update_claims_on(self, node: str) -> None:
        """Update the jobs with claims on a new or lost node: a lost node's pods are not awaited."""
        self._stale_claims |= {uid: self.jobs[uid] for uid in self.claim_tracker.claiming_on(node)}

    # --- derived state --------------------------------------------------------------------------

    def stand_by(self, now: float) -> None:
        """Limit the memory of the collected changes while another process leads."""
        self.settle(now)
        self.offer()
        self.failed.clear()
        self.changed.intersection_update(self.jobs)

    def settle(self, now: float) -> None:
        """Update ledger and clocks before a decision.

        `now`: in monotonic seconds. Changes seen since the last call count as seen now.
        """
        stale, self._stale_claims = self._stale_claims, {}
        for tracked in stale.values():
            self.sync_claims(tracked)
        self.backlog.settle(now)
        for uid in self._unsettled_jobs:
            self.jobs[uid].settled_at = now
        self._unsettled_jobs.clear()
        for tracked in self._stale_clocks.values():
            pods = self.pods(tracked.job.uid)
            # The clock of a job also restarts when its namespace becomes managed or unmanaged.
            managed = self._managed(tracked.job.namespace)
            tracked.observe_progress((*progress_of(tracked, pods), managed), at=now)
            tracked.observe_unbound(pods, at=now)
            plan = tracked.plan if managed and not tracked.job.finished else None
            if plan is not None and plan.slots:
                plan = with_slots_in_use(plan, tracked.job, pods)
                unreserved = self.claim_tracker.cards.unreserved(plan)
            else:
                unreserved = ()
            tracked.observe_unreserved(unreserved, at=now)
        self._stale_clocks.clear()
        jobs, plain = self.jobs, self.claim_tracker.plain_pods.items()
        self.plain_pods = sum(n for u, n in plain if now - jobs[u].progressed_at < PLAIN_SECONDS)

    def set_time(self, now: float) -> None:
        """Set the time, in epoch seconds, of everything seen since the last call."""
        for uid in self._enlarged_jobs & self.jobs.keys():
            self.jobs[uid].enlarged_at = now
        self._enlarged_jobs.clear()
        self.claim_tracker.expire_pins(now)
        if self.claim_tracker.autoscaled:
            self.claim_tracker.placeholders.record_progress(now)

    def sync_claims(self, tracked: TrackedJob) -> None:
        """Update the claims of a job."""
        if self.jobs.get(tracked.job.uid) is not tracked:
            return  # the job was deleted while its step was written
        pods = self.pods(tracked.job.uid)
        tracked.gated = any(pod.gated for pod in pods)
        self._stale_clocks[tracked.job.uid] = tracked
        self.claim_tracker.sync(tracked, pods)


# --- comparisons ---


def progress_of(tracked: TrackedJob, pods: Collection[Pod]) -> tuple[object, ...]:
    """Return a marker that changes whenever the job makes progress."""
    return (
        tracked.job.suspend,
        tracked.plan.generation if tracked.plan else 0,
        sum(not pod.deleting for pod in pods),
        sum(pod.gated for pod in pods),
        sum(bool(pod.node_name) for pod in pods),
    )


def place_of(pod: Pod) -> tuple[object, ...]:
    """Return the fields of a pod that its claims and steps depend on."""
    return (
        *(pod.node_name, pod.pinned_to, pod.gates, pod.deleting, pod.finished),
        *(pod.requests, pod.unschedulable, pod.replica, pod.affinity),
    )


def needs_more(job: TrainingJob, *, than: TrainingJob) -> bool:
    """Return whether an edit made a job larger: it needs more of a resource, or a new resource."""
    needed = than.requests
    return any(number > needed.get(name, 0) for name, number in job.requests.items())


def is_newer(version: str, known: TrainingJob) -> bool:
    """Return whether a resource version of a job is newer than the version of the known job."""
    return version != known.resource_version and not is_older(version, known.resource_version)


def is_older(version: str, other: str) -> bool:
    """Return whether a resource version is older than another version of the same object."""
    try:
        return int(version or "0") < int(other or "0")
    except ValueError:
        return False  # only numbers can be compared
