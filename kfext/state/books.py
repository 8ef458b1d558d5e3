"""The books: what pods and plans claim on the ledger, and the pods that are still to come.

They are kept true to the jobs and pods of the mirror, which calls in here with what has changed.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import card_key, pod_claim, pod_key, shifted_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Limits, limits_of
from kfext.core.settings.table import Settings
from kfext.model.gpu import Place
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.replicas import first_with_parts
from kfext.names import REASON_CREATE_TIMEOUT, REASON_QUOTA, REASON_WAITING_FOR_OPERATOR
from kfext.state.cards import Cards, Tolerations
from kfext.state.members import Members
from kfext.state.pending_pins import PendingPins
from kfext.state.plan_claims import PlanClaims
from kfext.state.pod_backlog import PodCreationBacklog, still_to_come
from kfext.state.tracked_job import TrackedJob


class Books:
    """The ledger and the backlog of pods, and what keeps them up to date.

    `limited`: the namespaces with a quota.

    `priority_of` returns the priority that pods of a job will have, None while that is not known.
    `managed` returns whether a namespace is opted in: elsewhere no plan is believed.
    `freed` is called when capacity came free, `resumed` when jobs may be planned that were stopped
    by what is named.
    `changed` is called with the uid of a job for which a GPU that it shares has changed.
    """

    def __init__(
        self,
        jobs: Mapping[str, TrackedJob],
        members: Members,
        *,
        priority_of: Callable[[TrainingJob], int | None],
        managed: Callable[[str], bool],
        freed: Callable[[], None],
        resumed: Callable[[str, str], None],
        changed: Callable[[str], None],
    ) -> None:
        self.ledger = Ledger()
        self.backlog = PodCreationBacklog()
        self.limited: Collection[str] = ()
        self._jobs = jobs
        self._members = members
        self._plans = PlanClaims(self.ledger)
        self._pins = PendingPins(self.ledger, self._is_planned)
        self.cards = Cards(self.ledger, changed)
        self._priority_of = priority_of
        self._managed = managed
        self._freed = freed
        self._resumed = resumed
        self._gains = 0

    # --- pods -----------------------------------------------------------------------------------

    def pinned(self) -> tuple[Pod, ...]:
        """Return the pods that are pinned to a node and not bound yet."""
        return self._pins.all()

    def take_pod(self, uid: str, pod: Pod | None) -> None:
        """Take in a pod as it stands, None when it is gone."""
        self._pins.note(uid, pod)
        self._recount({uid: pod})
        reserves = pod is not None and pod.reserves is not None
        if reserves or uid in self.cards.reserving or uid in self.cards.parts:
            self.cards.take_pod(uid, pod)
        if pod is not None and pod.share:
            owner = self._jobs.get(pod.owner_uid)
            theirs = owner if owner and owner.job.namespace == pod.namespace else None
            self._keep_parts([pod], of=theirs, claimed=theirs.claimed if theirs else {})

    def take_age(self, now: float) -> None:
        """Take in the time, in epoch seconds.

        Pods that were pinned, not by kfext, and are not bound in time claim nothing any more.
        """
        self._recount({pod.uid: pod for pod in self._pins.aged(now)})

    def recount_pins_on(self, node: str) -> None:
        """Take in that a node came, changed or went: whether a pin to it counts depends on it."""
        self._recount({pod.uid: pod for pod in self._pins.on(node)})

    def _recount(self, pods: Mapping[str, Pod | None]) -> None:
        """Bring the claims of pods, by uid, up to date; None for one that is gone."""
        for uid, pod in pods.items():
            claim = pod_claim(pod) if pod is not None and self._pins.count(pod) else None
            if claim is not None:
                self.ledger.claim(pod_key(uid), claim)
            else:
                self.ledger.drop(pod_key(uid))
        self._tell_gains()

    def _tell_gains(self) -> None:
        if self.ledger.gains != self._gains:
            self._gains = self.ledger.gains
            self._freed()

    def _is_planned(self, pod: Pod) -> bool:
        """Return whether a pod is pinned where the plan of its job has its replica."""
        tracked = self._jobs.get(pod.owner_uid)
        if tracked is None or tracked.job.namespace != pod.namespace or pod.replica is None:
            return False
        plan = tracked.assumed or tracked.plan
        if plan is None or plan.assignment.get(pod.replica) != pod.pinned_to:
            return False
        return self._managed(pod.namespace) and self._members.namesakes(pod) <= 1

    # --- plans ----------------------------------------------------------------------------------

    def sync(self, tracked: TrackedJob, pods: tuple[Pod, ...]) -> None:
        """Bring the claims of a job's plan up to date, and how many of its pods are to come."""
        self._recount_pins(pods)
        believed = self._managed(tracked.job.namespace)
        self._plans.sync(tracked, pods, priority=self._priority_of(tracked.job), believed=believed)
        planned = believed and (tracked.assumed or tracked.plan) is not None
        missing = still_to_come(tracked.started, pods, planned=planned)
        self._expect(tracked, missing and min(missing, self._planned(tracked)))
        if tracked.shares_gpus or tracked.job.uid in self.cards.jobs:
            self.cards.follow(tracked.job.uid, _cards(tracked), left=tracked.state.apart)
        self._keep_parts(pods, of=tracked, claimed=tracked.claimed)
        self._tell_gains()

    def hand_over(self, tracked: TrackedJob, pod: Pod) -> None:
        """Drop the plan's claim for a pod that now has a claim of its own."""
        self._plans.hand_over(tracked, pod)

    def forget(self, tracked: TrackedJob, pods: Iterable[Pod]) -> None:
        """Take in that a job is gone, and that it has left some pods behind."""
        self._expect(tracked, None)
        if tracked.job.uid in self.cards.jobs:
            self.cards.forget(tracked.job.uid)
        pods = tuple(pods)
        self._keep_parts(pods, of=tracked, claimed={})
        self._plans.drop(tracked)
        self._recount_pins(pods)

    def give_up(self, tracked: TrackedJob) -> None:
        """Plan as if the pods that the operator did not create for a job were never to come."""
        if self.backlog.give_up(tracked.job.uid):
            self._resumed("", REASON_WAITING_FOR_OPERATOR)

    def limits(self, tracked: TrackedJob, settings: Settings, *, now: float) -> Limits:
        """Return the limits within which a job is placed now, in epoch seconds."""
        closed = self.cards.shunned(tracked.job.uid) if tracked.shares_gpus else ()
        return limits_of(settings, excluded=tracked.state.excluded_at(now), closed=closed)

    def claiming_on(self, node: str) -> set[str]:
        """Return the uids of the jobs that have claims on a node."""
        return {claim.job for claim in self.ledger.claims_on([node]) if claim.job in self._jobs}

    def _recount_pins(self, pods: Iterable[Pod]) -> None:
        self._recount({pod.uid: pod for pod in pods if pod.pinned_to and not pod.node_name})

    def _keep_parts(
        self, pods: Iterable[Pod], *, of: TrackedJob | None, claimed: Mapping[Hashable, Claim]
    ) -> None:
        """Have pods claim the parts of GPUs that they still have and that no plan claims.

        A pin that was sent before the plan changed may have bound a pod to another node. Of several
        pods that are called one replica the plan counts one.
        """
        first: Mapping[ReplicaKey, str] | None = None
        for pod in pods:
            if pod.share is not None:
                claim = claimed.get(card_key(pod.owner_uid, pod.replica)) if pod.replica else None
                planned = claim is not None and pod.home in {"", claim.node}
                if planned and pod.replica and self._members.doubled(pod):
                    if first is None:
                        mates = self._members.of(pod.owner_uid, namespace=pod.namespace)
                        first = first_with_parts(mates)
                    planned = first.get(pod.replica, pod.uid) == pod.uid
                tolerations = _tolerations(of.job, pod.replica) if of and pod.replica else ()
                self.cards.keep(pod, planned=planned, tolerations=tolerations)

    def _planned(self, tracked: TrackedJob) -> int:
        """Return how many pods a plan claims capacity for, on nodes that exist."""
        uid = tracked.job.uid
        return sum(
            self.ledger.row(claim.node) is not None
            for key, claim in tracked.claimed.items()
            if claim.requests and key != shifted_key(uid, claim.node)
        )

    def _expect(self, tracked: TrackedJob, missing: int | None) -> None:
        """Take in how many pods of a job are still to come, None if it waits for none."""
        uid, namespace = tracked.job.uid, tracked.job.namespace
        plan = tracked.assumed or tracked.plan
        # The operator begins with the answer to the patch that unsuspends the job.
        attempt = (plan.generation if plan else 0, tracked.assumed is None)
        all_came = self.backlog.missing(uid) and not missing
        doubted = tracked.state.strikes > 0 and tracked.state.reason == REASON_CREATE_TIMEOUT
        if self.backlog.expect(uid, missing, attempt=attempt, doubted=doubted):
            self._resumed("", REASON_WAITING_FOR_OPERATOR)
        elif all_came and namespace in self.limited:
            self._resumed(namespace, REASON_QUOTA)  # it counts all of them now


def _cards(tracked: TrackedJob) -> Mapping[Place, Tolerations]:
    """Return the slots for which the claims of a job need GPUs, and what its pods tolerate."""
    wanted: dict[Place, Tolerations] = {}
    plan = tracked.assumed or tracked.plan
    if plan is None:
        return {}
    types = {group.type.lower() for group in tracked.job.groups}
    for key, slot in plan.slots.items():
        if card_key(tracked.job.uid, key) in tracked.claimed and key.type in types:
            wanted.setdefault((plan.assignment[key], slot), _tolerations(tracked.job, key))
    return wanted


def _tolerations(job: TrainingJob, replica: ReplicaKey) -> Tolerations:
    """Return what the pod of a replica tolerates, by its template."""
    groups = (group for group in job.groups if group.type.lower() == replica.type)
    return next((group.constraints.tolerations for group in groups), ())
