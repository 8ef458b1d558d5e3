"""The claims of pods and plans on the ledger, and the pods that the operator has yet to create."""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import card_key, plan_claims, plan_key, pod_claim, pod_key
from kfext.core.ledger.fit import UNBOUND_SECONDS, could_run, may_be_bound
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Limits, limits_of
from kfext.core.settings.table import Settings
from kfext.model.gpu import Place
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.priority import PriorityClass
from kfext.model.replicas import first_with_share
from kfext.names import (
    PLACEHOLDER_PRIORITY,
    REASON_CREATE_TIMEOUT,
    REASON_QUOTA,
    REASON_WAITING_FOR_OPERATOR,
)
from kfext.state.mirror.card_demand import Tolerations
from kfext.state.mirror.cards import Cards
from kfext.state.mirror.holds import Holds
from kfext.state.mirror.members import Members
from kfext.state.mirror.placeholders import Placeholders
from kfext.state.mirror.pod_backlog import PodCreationBacklog, still_to_come, to_be_bound
from kfext.state.mirror.timers import Timers
from kfext.state.mirror.tracked_job import TrackedJob


class ClaimTracker:
    """Keeps the ledger and the backlog of pods up to date.

    `limited`: the namespaces with a quota.
    `refused`: by uid, the pods that kube-scheduler has marked as unschedulable.
    `unpinned_pending`: by uid, the newest pod last: when each pending pod without a pin was first
        seen, in epoch seconds; infinity before the next `expire_pins`.
    `autoscaled`: whether jobs may ask an autoscaler for nodes; else no placeholders are tracked.
    `plain_pods`: by uid, the number of pods that plain Kubernetes is about to place for a job.
    `synced`: the uids of jobs with updated claims; None means that usage is not charged.

    `class_of` returns the lowest PriorityClass that the pods of a job will have.
    `managed` returns whether a namespace is managed; elsewhere plans are ignored.
    `freed` is called when capacity becomes free.
    `doubted` returns the nodes that a job uses only if it fits nowhere else.
    `retry` is called with a namespace and a reason when jobs there that wait for this reason may
        be planned; an empty namespace means all namespaces.
    `changed` is called with the uid of a job after a change of a GPU that it shares or of one of
        its placeholders.
    """

    def __init__(
        self,
        jobs: Mapping[str, TrackedJob],
        members: Members,
        *,
        class_of: Callable[[TrainingJob], PriorityClass],
        managed: Callable[[str], bool],
        freed: Callable[[], None],
        retry: Callable[[str, str], None],
        changed: Callable[[str], None],
    ) -> None:
        self.ledger = Ledger()
        self.holds = Holds(self.ledger, freed)
        self.backlog = PodCreationBacklog()
        self.limited: Collection[str] = ()
        self.refused: dict[str, Pod] = {}
        self.unpinned_pending: dict[str, float] = {}
        self.autoscaled = False
        self.plain_pods: dict[str, int] = {}
        self.synced: set[str] | None = None
        self.doubted: Callable[[TrackedJob], frozenset[str]] = lambda _tracked: frozenset()
        self._jobs = jobs
        self._members = members
        self._pins = _PendingPins(self.ledger, self._is_planned)
        self.cards = Cards(self.ledger, changed)
        self.placeholders = Placeholders(self.ledger, jobs, changed)
        self._class_of = class_of
        self._managed = managed
        self._freed = freed
        self._retry = retry
        self._gains = 0

    # --- pods -----------------------------------------------------------------------------------

    def pinned(self) -> tuple[Pod, ...]:
        """Return the pods that are pinned to a node and not bound yet."""
        return self._pins.all()

    def owner(self, pod: Pod) -> TrackedJob | None:
        """Return the job that a pod names, if it is known and in the namespace of the pod."""
        tracked = self._jobs.get(pod.owner_uid)
        return tracked if tracked and tracked.job.namespace == pod.namespace else None

    def observe_pod(self, uid: str, pod: Pod | None) -> None:
        """Record the present version of a pod, or None when it is gone."""
        self.autoscaled |= pod is not None and bool(pod.placeholder_of)
        if self.autoscaled and self.placeholders.concerns_pod(uid, pod):
            self.placeholders.observe(uid, pod)
            self._notify_if_freed()
            return
        self._pins.record(uid, pod)
        self._update_claims({uid: pod})
        self.refused.pop(uid, None)
        if pod is not None and pod.untried:
            self.unpinned_pending.setdefault(uid, math.inf)
        else:
            self.unpinned_pending.pop(uid, None)
        if pod is not None and pod.unschedulable and not (pod.node_name or pod.deleting):
            self.refused[uid] = pod
        reserves = pod is not None and pod.reserves is not None
        if reserves or uid in self.cards.reserving or uid in self.cards.unplanned:
            self.cards.observe_pod(uid, pod)
        if pod is not None and pod.share:
            tracked = self.owner(pod)
            claimed = self.holds.plan(pod.owner_uid) if tracked else {}
            self._claim_shares([pod], owner=tracked, claimed=claimed)

    def expire_pins(self, now: float) -> None:
        """Drop the claims of pods that another client pinned and that were not bound in time.

        `now`, in epoch seconds, also becomes the time of the pending pods seen since the last call.
        """
        self._update_claims({pod.uid: pod for pod in self._pins.newly_overdue(now)})
        for uid in reversed(self.unpinned_pending):
            if self.unpinned_pending[uid] <= now:
                break
            self.unpinned_pending[uid] = now

    def has_unpinned_pending(self, now: float) -> bool:
        """Return whether a pending pod without a pin is new enough to be bound soon."""
        return now - next(reversed(self.unpinned_pending.values()), -math.inf) < UNBOUND_SECONDS

    def observe_node(self, node: str) -> None:
        """Update the claims of the pods that are pinned to a changed node and not bound yet."""
        self._update_claims({pod.uid: pod for pod in self._pins.on(node)})
        if self.autoscaled:
            self.placeholders.observe_node(node)

    def _update_claims(self, pods: Mapping[str, Pod | None]) -> None:
        """Update the claims of pods, by uid; None means that the pod is gone."""
        for uid, pod in pods.items():
            claim = self._pod_claim(pod) if pod is not None and self._pins.counts(pod) else None
            if self.synced is not None and pod is not None and pod.owner_uid:
                self.synced.add(pod.owner_uid)
            if claim is not None:
                self.ledger.claim(pod_key(uid), claim)
            else:
                self.ledger.drop(pod_key(uid))
        self._notify_if_freed()

    def _pod_claim(self, pod: Pod) -> Claim | None:
        tracked = self.owner(pod)
        return pod_claim(pod, tracked.state.cpu) if tracked else pod_claim(pod)

    def _notify_if_freed(self) -> None:
        if self.ledger.gains != self._gains:
            self._gains = self.ledger.gains
            self._freed()

    def _is_planned(self, pod: Pod) -> bool:
        """Return whether a pod is pinned to the node that its job's plan has for its replica."""
        tracked = self.owner(pod)
        if tracked is None or pod.replica is None:
            return False
        plan = tracked.assumed or tracked.plan
        if plan is None or plan.assignment.get(pod.replica) != pod.pinned_to:
            return False
        return self._managed(pod.namespace) and self._members.duplicates(pod) <= 1

    # --- plans ----------------------------------------------------------------------------------

    def sync(self, tracked: TrackedJob, pods: tuple[Pod, ...]) -> None:
        """Update the claims of a job and the number of its missing pods."""
        if self.synced is not None:
            self.synced.add(tracked.job.uid)
        self._update_pins(pods)
        if tracked.state.cpu.requested:
            self._update_claims({pod.uid: pod for pod in pods})
        trusted = self._managed(tracked.job.namespace)
        self._claim_plan(tracked, pods, trusted=trusted)
        planned = trusted and (tracked.assumed or tracked.plan) is not None
        if plain := to_be_bound(tracked.job_after_step, pods, planned=planned) if trusted else 0:
            self.plain_pods[tracked.job.uid] = plain
        else:
            self.plain_pods.pop(tracked.job.uid, None)
        missing = still_to_come(tracked.job_after_step, pods, planned=planned)
        self._expect(tracked, missing and min(missing, self._planned_pods(tracked)))
        if tracked.shares_gpus or tracked.job.uid in self.cards.jobs:
            self.cards.follow(tracked.job.uid, self._slots(tracked), others=tracked.state.apart)
        self._claim_shares(pods, owner=tracked, claimed=self.holds.plan(tracked.job.uid))
        self.autoscaled |= tracked.state.ask is not None
        if self.autoscaled:
            self._ask_for_nodes(tracked, pods)
        self._notify_if_freed()

    def _ask_for_nodes(self, tracked: TrackedJob, pods: tuple[Pod, ...]) -> None:
        priority = self._class_of(tracked.job)
        preempts = priority.preempts and priority.value > PLACEHOLDER_PRIORITY
        if self.placeholders.concerns(tracked, preempts=preempts):
            managed = self._managed(tracked.job.namespace)
            self.placeholders.follow(tracked, pods, managed=managed, preempts=preempts)

    def _claim_plan(self, tracked: TrackedJob, pods: tuple[Pod, ...], *, trusted: bool) -> None:
        """Update the claims of a job's plan: a claim for each pod without a claim of its own.

        A plan that is not `trusted` claims nothing.
        """
        plan = tracked.assumed or tracked.plan if trusted else None
        if tracked.unclaimed and not any(pod.home for pod in pods):
            plan = None
        priority = self._class_of(tracked.job).value
        job, lapsed = tracked.job_after_step, tracked.lapsed
        wanted = plan_claims(job, plan, pods, priority=priority, lapsed=lapsed)
        self.holds.hold_plan(tracked.job.uid, wanted)

    def hand_over(self, tracked: TrackedJob, pod: Pod) -> None:
        """Drop the plan's claim for a pod that now has a claim of its own."""
        if pod.home and pod.replica is not None:
            uid = tracked.job.uid
            self.holds.hand_over(uid, plan_key(uid, pod.replica), heir=pod_key(pod.uid))

    def forget(self, tracked: TrackedJob, pods: Iterable[Pod]) -> None:
        """Forget a job that is gone; `pods` are its pods that still exist."""
        if self.synced is not None:
            self.synced.add(tracked.job.uid)
        self._expect(tracked, None)
        self.plain_pods.pop(tracked.job.uid, None)
        if self.autoscaled:
            self.placeholders.forget(tracked.job.uid)
        if tracked.job.uid in self.cards.jobs:
            self.cards.forget(tracked.job.uid)
        pods = tuple(pods)
        self._claim_shares(pods, owner=tracked, claimed={})
        self.holds.hold_plan(tracked.job.uid, {})
        self._update_pins(pods)

    def give_up(self, tracked: TrackedJob) -> None:
        """Stop waiting for the pods that the operator did not create for a job."""
        if self.backlog.give_up(tracked.job.uid):
            self._retry("", REASON_WAITING_FOR_OPERATOR)

    def limits(
        self,
        tracked: TrackedJob,
        settings: Settings,
        *,
        now: float,
        awaited: frozenset[str] = frozenset(),
    ) -> Limits:
        """Return the limits on the placement of a job; `now` is in epoch seconds.

        `awaited`: the new nodes that other gangs asked for.
        """
        closed = self.cards.shunned(tracked.job.uid) if tracked.shares_gpus else ()
        excluded = tracked.state.excluded_nodes(now)
        doubted = self.doubted(tracked)
        return limits_of(
            settings, excluded=excluded, doubted=doubted, closed=closed, awaited=awaited
        )

    def claiming_on(self, node: str) -> set[str]:
        """Return the uids of the jobs that have claims on a node."""
        return {claim.job for claim in self.ledger.claims_on([node]) if claim.job in self._jobs}

    def _update_pins(self, pods: Iterable[Pod]) -> None:
        self._update_claims({pod.uid: pod for pod in pods if pod.pinned_to and not pod.node_name})

    def _claim_shares(
        self, pods: Iterable[Pod], *, owner: TrackedJob | None, claimed: Mapping[Hashable, Claim]
    ) -> None:
        """Claim the GPU shares of pods that the claims of their job's plan do not cover.

        A pin that was sent before the plan changed may have bound a pod to a node outside the plan.
        Of several duplicates, the plan covers the first. `claimed`: the claims of the plan.
        """
        first: Mapping[ReplicaKey, str] | None = None
        for pod in pods:
            if pod.share is not None:
                claim = claimed.get(card_key(pod.owner_uid, pod.replica)) if pod.replica else None
                planned = claim is not None and pod.home in {"", claim.node}
                if planned and pod.replica and self._members.has_duplicate(pod):
                    if first is None:
                        mates = self._members.pods_of(pod.owner_uid, namespace=pod.namespace)
                        first = first_with_share(mates)
                    planned = first.get(pod.replica, pod.uid) == pod.uid
                tolerations = _tolerations(owner.job, pod.replica) if owner and pod.replica else ()
                self.cards.claim_share(pod, planned=planned, tolerations=tolerations)

    def _slots(self, tracked: TrackedJob) -> Mapping[Place, Tolerations]:
        """Return the slots that need GPUs for a job, each with the tolerations of a pod in it."""
        wanted: dict[Place, Tolerations] = {}
        plan, uid = tracked.assumed or tracked.plan, tracked.job.uid
        if plan is None:
            return {}
        types = {group.type.lower() for group in tracked.job.groups}
        for key, slot in plan.slots.items():
            if card_key(uid, key) in self.holds.plan(uid) and key.type in types:
                wanted.setdefault((plan.assignment[key], slot), _tolerations(tracked.job, key))
        return wanted

    def _planned_pods(self, tracked: TrackedJob) -> int:
        """Return the number of pods with a claim of the plan on an existing node."""
        return sum(
            self.ledger.row(claim.node) is not None
            for claim in self.holds.plan(tracked.job.uid).values()
            if claim.requests
        )

    def _expect(self, tracked: TrackedJob, missing: int | None) -> None:
        """Record the number of pods that a job lacks; None means that it waits for no pod."""
        uid, namespace = tracked.job.uid, tracked.job.namespace
        plan = tracked.assumed or tracked.plan
        # The operator starts to create pods once the patch that unsuspends the job is written.
        attempt = (plan.generation if plan else 0, tracked.assumed is None)
        completed = self.backlog.missing(uid) and not missing
        doubted = tracked.state.strikes > 0 and tracked.state.reason == REASON_CREATE_TIMEOUT
        if self.backlog.expect(uid, missing, attempt=attempt, doubted=doubted):
            self._retry("", REASON_WAITING_FOR_OPERATOR)
        elif completed and namespace in self.limited:
            self._retry(namespace, REASON_QUOTA)  # the quota now counts all pods of the job


class _PendingPins:
    """The pods that are pinned to a node and not bound yet. Times are in epoch seconds.

    `planned` returns whether a pod is pinned by a plan; the job's lifecycle ends the wait for it.
    """

    def __init__(self, ledger: Ledger, planned: Callable[[Pod], bool]) -> None:
        self._ledger = ledger
        self._planned = planned
        self._pods: dict[str, Pod] = {}
        self._by_node: dict[str, set[str]] = {}
        self._ages = Timers()
        self._new: set[str] = set()
        self._overdue: set[str] = set()

    def all(self) -> tuple[Pod, ...]:
        return tuple(self._pods.values())

    def on(self, node: str) -> tuple[Pod, ...]:
        return tuple(self._pods[uid] for uid in sorted(self._by_node.get(node, ())))

    def record(self, uid: str, pod: Pod | None) -> None:
        """Record the present version of a pod, or None when it is gone."""
        earlier = self._pods.pop(uid, None)
        if earlier is not None and earlier.pinned_to:
            self._by_node[earlier.pinned_to].discard(uid)
            if not self._by_node[earlier.pinned_to]:
                del self._by_node[earlier.pinned_to]
        if pod is None or not pod.pinned_to or pod.node_name or pod.finished:
            self._ages.forget(uid)
            self._new.discard(uid)
            self._overdue.discard(uid)
            return
        self._pods[uid] = pod
        self._by_node.setdefault(pod.pinned_to, set()).add(uid)
        if earlier is None:
            self._new.add(uid)

    def counts(self, pod: Pod) -> bool:
        """Return whether a pod uses capacity of the node that it is bound or pinned to."""
        if pod.node_name or not pod.pinned_to:
            return True
        node = self._ledger.node(pod.pinned_to)
        if self._planned(pod):
            return could_run(pod, node)
        return pod.uid not in self._overdue and may_be_bound(pod, node)

    def newly_overdue(self, now: float) -> list[Pod]:
        """Return the pods that have become overdue since the last call."""
        for uid in self._new:
            # If the API server's clock is ahead, the creation may seem to be after `now`.
            self._ages.set(uid, min(self._pods[uid].created, now) + UNBOUND_SECONDS)
        self._new.clear()
        overdue = self._ages.due(now)
        self._overdue.update(overdue)
        return [self._pods[uid] for uid in overdue]


def _tolerations(job: TrainingJob, replica: ReplicaKey) -> Tolerations:
    groups = (group for group in job.groups if group.type.lower() == replica.type)
    return next((group.constraints.tolerations for group in groups), ())
