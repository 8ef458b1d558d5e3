"""The mirror of the cluster: jobs, pods and the ledger, as last seen.

Everything here can be rebuilt from the API server. The answer to one of our writes is taken in like
a watch event, so that the next decision is not based on outdated objects. The mirror has no clock:
`settle` sets the time, and everything seen since the last call counts as seen at that time.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kfext.core.ledger.claims import pod_claim, pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.observed import as_observed
from kfext.core.patches.basis import basis
from kfext.model.job import TrainingJob, parse_job
from kfext.model.job_state import state_of
from kfext.model.node import Node
from kfext.model.plan import plan_of
from kfext.model.pod import Pod
from kfext.model.tolerant import mapping, text
from kfext.model.volume import StorageClass, Volume, VolumeClaim
from kfext.state.changes import is_newer, is_older, needs_more, place_of, progress_of
from kfext.state.members import Members
from kfext.state.pending_pins import PendingPins
from kfext.state.plan_claims import PlanClaims
from kfext.state.pod_backlog import PodCreationBacklog, still_to_come
from kfext.state.tracked_job import TrackedJob
from kfext.state.volumes import Volumes, claiming

_GONE_KEPT = 10_000
"""How many uids of deleted jobs are remembered; answers are late by seconds at most."""


def _idle() -> None:
    """Wake nothing: the driver polls."""


class Cluster:
    """The mirror of jobs, pods and nodes.

    `jobs`: the jobs by uid.
    `ledger`: the nodes and all claims on them.
    `changed`: the uids of jobs to look at again.
    `backlog`: the pods that the operator still has to create.
    `limited`: the namespaces with a quota.
    `volumes`: the volume claims, and the volumes to which they are bound.
    `ends_version`: a count of changes to the time when a job ends.

    `priority_of` returns the priority that pods of a job will have, None while that is not known.
    `managed` returns whether a namespace is opted in: elsewhere no plan is believed.
    `wake` is called when there is something to look at.
    """

    def __init__(
        self,
        *,
        wake: Callable[[], None] = _idle,
        priority_of: Callable[[TrainingJob], int | None] = lambda job: None,
        managed: Callable[[str], bool] = lambda namespace: True,
    ) -> None:
        self.jobs: dict[str, TrackedJob] = {}
        self.ledger = Ledger()
        self.changed: set[str] = set()
        self.backlog = PodCreationBacklog()
        self.limited: set[str] = set()
        self.volumes = Volumes()
        self.ends_version = 0
        self._members = Members()
        self._claiming: set[str] = set()
        self._claims = PlanClaims(self.ledger)
        self._pins = PendingPins(self.ledger, self._is_planned)
        self._gone: dict[str, None] = {}
        self._unsettled: dict[str, TrackedJob] = {}
        self._untimed: dict[str, TrackedJob] = {}
        self._resized: set[str] = set()
        self._enlarged: set[str] = set()
        self._wake = wake
        self._priority_of = priority_of
        self._managed = managed

    def pods(self, job_uid: str) -> tuple[Pod, ...]:
        """Return the pods whose controller is the job, terminating ones included."""
        tracked = self.jobs.get(job_uid)
        return self._members.of(job_uid, namespace=tracked.job.namespace) if tracked else ()

    def members(self) -> tuple[Pod, ...]:
        """Return the pods of all jobs."""
        return self._members.all()

    def homes(self, job_uid: str) -> tuple[str, ...]:
        """Return the nodes where pods of a job are bound, in name order."""
        bound = (pod for pod in self.pods(job_uid) if pod.node_name and not pod.deleting)
        return tuple(sorted({pod.node_name for pod in bound}))

    def count(self, phase: str) -> int:
        """Return how many jobs were last seen in a phase."""
        return sum(tracked.phase == phase for tracked in self.jobs.values())

    def mark(self, job_uid: str) -> None:
        """Have a job looked at again."""
        self.changed.add(job_uid)
        self._wake()

    def mark_queue(self, namespace: str = "") -> None:
        """Have every waiting job, or those of a namespace, looked at again: they may fit now."""
        waiting = [
            uid
            for uid, tracked in self.jobs.items()
            if tracked.waiting and namespace in {"", tracked.job.namespace}
        ]
        if waiting:
            self.changed.update(waiting)
            self._wake()

    # --- changes from the watches ---------------------------------------------------------------

    def observe_job(self, raw: Mapping[str, Any]) -> None:
        """Take in the present version of a job; one older than the known version is ignored."""
        metadata = mapping(raw.get("metadata"))
        tracked = self.jobs.get(text(metadata.get("uid")))
        if tracked is not None and not is_newer(text(metadata.get("resourceVersion")), tracked.job):
            return
        job = parse_job(raw)
        if job is None or not job.uid:
            return
        self.take_job(job, basis(raw, job))

    def take_job(self, job: TrainingJob, raw: Mapping[str, Any]) -> None:
        """Take in a parsed job; `raw` is the JSON object for which its patches are made.

        From here on its replicas are as admission makes them, as far as that has been seen.
        """
        if job.uid in self._gone:
            return
        if claiming(job):
            self._claiming.add(job.uid)
            job = self.volumes.of_job(job)
        plan = plan_of(job)
        state = state_of(job)
        job = as_observed(job, state)
        tracked = self.jobs.get(job.uid)
        if tracked is None:
            tracked = self.jobs[job.uid] = TrackedJob(raw, job, plan, state)
            self._resized.add(job.uid)
        else:
            if tracked.job.ends != job.ends:
                self.ends_version += 1
            if needs_more(job, than=tracked.job):
                self._enlarged.add(job.uid)
            tracked.update(raw, job, plan, state)
        self.sync_claims(tracked)
        self.mark(job.uid)

    def forget_job(self, uid: str) -> None:
        """Take in that a job is gone; a later answer to one of our writes is ignored."""
        self._gone[uid] = None
        if len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]
        tracked = self.jobs.pop(uid, None)
        if tracked is None:
            return
        for noted in (self._unsettled, self._untimed):
            noted.pop(uid, None)
        self._resized.discard(uid)
        self._claiming.discard(uid)
        self._expect(tracked, None)
        if self._claims.drop(tracked):
            self.mark_queue()
        pods = self._members.of(uid, namespace=tracked.job.namespace)
        self._recount(pod for pod in pods if pod.pinned_to)
        self.mark(uid)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take in a pod as it stands; None for `new` when it is gone."""
        pod = new or old
        if pod is None:
            return
        known = self._members.known(pod)
        if new and known and is_older(new.resource_version, known.resource_version):
            return
        if old and old.owner_uid != pod.owner_uid:
            self._members.remove(old)
        elif old and new and pod.owner_uid and not known:
            return  # the pod is gone, and this is the late answer to a write of ours
        self._pins.note(pod.uid, new)
        gains = self.ledger.gains
        self._claim(pod.uid, new)
        if self.ledger.gains != gains:
            self.mark_queue()
        if pod.owner_uid:
            self._observe_member(pod, known=known, gone=new is None)

    def _recount(self, pods: Iterable[Pod]) -> None:
        """Bring the claims of pods on the ledger up to date."""
        gains = self.ledger.gains
        for pod in pods:
            self._claim(pod.uid, pod)
        if self.ledger.gains != gains:
            self.mark_queue()

    def _claim(self, uid: str, pod: Pod | None) -> None:
        """Have a pod claim what it takes; None for one that is gone."""
        claim = pod_claim(pod) if pod is not None and self._pins.count(pod) else None
        if claim is not None:
            self.ledger.claim(pod_key(uid), claim)
        else:
            self.ledger.drop(pod_key(uid))

    def _observe_member(self, pod: Pod, *, known: Pod | None, gone: bool) -> None:
        first = known is None
        if gone:
            self._members.remove(pod)
        else:
            self._members.put(pod)
        if known is not None and not gone and place_of(known) == place_of(pod):
            return  # the kubelet's status updates do not affect placement
        if first and not gone:
            self.backlog.note_created(pod.owner_uid, pod.replica)
        tracked = self.jobs.get(pod.owner_uid)
        if tracked is not None and tracked.job.namespace == pod.namespace:
            if first or gone:
                self._resized.add(pod.owner_uid)
            self._claims.hand_over(tracked, pod)
            if not tracked.busy:  # while its pods are patched one by one, settle once at the end
                self._unsettled[pod.owner_uid] = tracked
            self.mark(pod.owner_uid)

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """Take in a node as it stands; None for `new` when it is gone."""
        if new is not None:
            if self.ledger.row(new.name) is None:
                self._recount_claims_on(new.name)
            self.ledger.set_node(new)
            self._recount(self._pins.on(new.name))
            self.mark_queue()
        elif old is not None:
            self._recount_claims_on(old.name)
            self.ledger.remove_node(old.name)
            self._recount(self._pins.on(old.name))
            self.mark_queue()  # jobs may now wait for another reason

    def observe_claim(self, old: VolumeClaim | None, new: VolumeClaim | None) -> None:
        """Take in a volume claim as it stands; None for `new` when it is gone."""
        self._recheck_volumes(self.volumes.observe_claim(old, new))

    def observe_volume(self, old: Volume | None, new: Volume | None) -> None:
        """Take in a volume as it stands; None for `new` when it is gone."""
        self._recheck_volumes(self.volumes.observe_volume(old, new))

    def observe_storage_class(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """Take in a storage class as it stands; None for `new` when it is gone."""
        self._recheck_volumes(self.volumes.observe_class(old, new))

    def _recheck_volumes(self, namespace: str) -> None:
        """Have the jobs looked at again whose volume claims now mean something else."""
        for uid in self._claiming:
            tracked = self.jobs[uid]
            if namespace in {"", tracked.job.namespace}:
                job = self.volumes.of_job(tracked.job)
                if job != tracked.job:
                    tracked.job = job
                    self.mark(uid)

    def recount_priorities(self) -> None:
        """Take in that PriorityClasses changed: claims of plans have the priority of their pods."""
        self._unsettled |= {uid: one for uid, one in self.jobs.items() if one.claimed}

    def recount_namespace(self, namespace: str) -> None:
        """Take in that a namespace was opted in or out: whether its plans are believed changes."""
        inside = {uid: one for uid, one in self.jobs.items() if one.job.namespace == namespace}
        if inside:
            self._unsettled |= inside
            self.changed.update(inside)
            self._wake()

    def _recount_claims_on(self, node: str) -> None:
        """Take in that a node came or went: pods that are planned nowhere are not waited for."""
        planned = {claim.job for claim in self.ledger.claims_on([node]) if claim.job in self.jobs}
        self._unsettled |= {uid: self.jobs[uid] for uid in planned}

    # --- derived state --------------------------------------------------------------------------

    def stand_by(self, now: float) -> None:
        """Bound the set of changed jobs while another process leads."""
        self.settle(now)
        self.changed.intersection_update(self.jobs)

    def settle(self, now: float) -> None:
        """Bring ledger and clocks up to date before anything is decided.

        `now` is in monotonic seconds: changes seen since the last call count as seen now.
        """
        unsettled, self._unsettled = self._unsettled, {}
        for tracked in unsettled.values():
            self.sync_claims(tracked)
        self.backlog.settle(now)
        for uid in self._resized:
            self.jobs[uid].settled_at = now
        self._resized.clear()
        for tracked in self._untimed.values():
            pods = self.pods(tracked.job.uid)
            # A job has as long from when its namespace is opted out as from its first sight.
            managed = self._managed(tracked.job.namespace)
            tracked.observe_progress((*progress_of(tracked, pods), managed), at=now)
            tracked.observe_unbound(pods, at=now)
        self._untimed.clear()

    def pinned(self) -> tuple[Pod, ...]:
        """Return the pods that are pinned to a node and not bound yet."""
        return self._pins.all()

    def take_time(self, now: float) -> None:
        """Take in the time, in epoch seconds, at which all was seen since the last call.

        Pods that were pinned, not by kfext, and are not bound in time claim nothing any more.
        """
        for uid in self._enlarged & self.jobs.keys():
            self.jobs[uid].enlarged_at = now
        self._enlarged.clear()
        self._recount(self._pins.aged(now))

    def _is_planned(self, pod: Pod) -> bool:
        """Return whether a pod is pinned where the plan of its job has its replica."""
        tracked = self.jobs.get(pod.owner_uid)
        if tracked is None or tracked.job.namespace != pod.namespace or pod.replica is None:
            return False
        plan = tracked.assumed or tracked.plan
        if plan is None or plan.assignment.get(pod.replica) != pod.pinned_to:
            return False
        return self._managed(pod.namespace) and self._members.namesakes(pod) <= 1

    def sync_claims(self, tracked: TrackedJob) -> None:
        """Bring the claims of the job's plan on the ledger up to date."""
        if self.jobs.get(tracked.job.uid) is not tracked:
            return  # gone while its step was written
        pods = self.pods(tracked.job.uid)
        tracked.gated = any(pod.gated for pod in pods)
        self._untimed[tracked.job.uid] = tracked
        self._recount(pod for pod in pods if pod.pinned_to and not pod.node_name)
        believed = self._managed(tracked.job.namespace)
        freed = self._claims.sync(
            tracked, pods, priority=self._priority_of(tracked.job), believed=believed
        )
        planned = believed and (tracked.assumed or tracked.plan) is not None
        missing = still_to_come(tracked.started, pods, planned=planned)
        self._expect(tracked, missing and min(missing, self._planned(tracked)))
        if freed:
            self.mark_queue()

    def give_up(self, tracked: TrackedJob) -> None:
        """Plan as if the pods that the operator did not create for a job were never to come."""
        if self.backlog.give_up(tracked.job.uid):
            self.mark_queue()

    def _planned(self, tracked: TrackedJob) -> int:
        """Return how many pods a plan claims capacity for, on nodes that exist."""
        claims = (claim for claim in tracked.claimed.values() if claim.requests)
        return sum(self.ledger.row(claim.node) is not None for claim in claims)

    def _expect(self, tracked: TrackedJob, missing: int | None) -> None:
        """Take in how many pods of a job are still to come, None if it waits for none."""
        uid, namespace = tracked.job.uid, tracked.job.namespace
        plan = tracked.assumed or tracked.plan
        # The operator begins with the answer to the patch that unsuspends the job.
        attempt = (plan.generation if plan else 0, tracked.assumed is None)
        all_came = self.backlog.missing(uid) and not missing
        if self.backlog.expect(uid, missing, attempt=attempt):
            self.mark_queue()
        elif all_came and namespace in self.limited:
            self.mark_queue(namespace)  # its quota counts all of them now
