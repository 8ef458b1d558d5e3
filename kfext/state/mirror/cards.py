"""The GPUs that jobs share: their state, and the reservation pods that exist or are needed.

A reservation pod requests the GPU of a slot, so that Kubernetes counts the GPU. It exists while a
plan has a replica in the slot or a pod has GPU time of the slot. Until kfext sees the reservation
pod, a claim keeps the GPU free.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kfext.core.ledger.cards import capacity, has_priority, is_of_card
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import reserved_gpu, share_claim, slots_of
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.situation import CardView
from kfext.model.backoff import exponential_backoff
from kfext.model.gpu import Place, resource_of, slot_units
from kfext.model.job import TrainingJob
from kfext.model.node import Node
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.shared_gpu import SharedGpu
from kfext.state.mirror.card_demand import CardDemand, SeparatedJobs, Tolerations

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""The back-off after a step, in seconds; it doubles with each attempt."""
_Key = tuple[type, Place]
"""A kind of step, and its slot."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Create the reservation pod of a slot; succeeds if the pod already exists."""

    place: Place
    tolerations: Tolerations


@dataclass(frozen=True, slots=True)
class Unreserve:
    """Delete the reservation pod of an unused slot, or a reservation pod that has ended."""

    place: Place
    pod: Pod


class Cards:
    """Keeps the claims of shared GPUs on the ledger. Times are in monotonic seconds.

    `apart`: the jobs that must not share a card again.
    `demand`: the slots that need GPUs.
    `known`: the slots that agents have reported. `slots`: the numbers of these slots, by node.
    `reserved`: the reservation pods by slot. `reserving`: the slots of these pods, by uid.
    `unplanned`: the uids of the pods with shares that no plan claims.
    `jobs`: the uids of the jobs that share GPUs.
    `pending`: when each begun step may be tried again; infinity while the step is being written.
    `changed` is called with the uid of a job when one of its cards has changed.

    Callers check these attributes first, so nothing here runs for a job or pod without a share.
    """

    def __init__(self, ledger: Ledger, changed: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._changed = changed
        self.apart, self.demand = SeparatedJobs(), CardDemand()
        self.known: dict[Place, SharedGpu] = {}
        self.slots: dict[str, set[int]] = {}
        self.reserved: dict[Place, Pod] = {}
        self.reserving: dict[str, Place] = {}
        self.unplanned: set[str] = set()
        self.jobs: set[str] = set()
        self.pending: dict[_Key, float] = {}
        self._tries: dict[_Key, int] = {}

    # --- changes from the watches ---------------------------------------------------------------

    def observe(self, old: SharedGpu | None, new: SharedGpu | None) -> None:
        """Record the present version of a slot; `new` is None when the slot is gone."""
        if old is not None:
            self.known.pop((old.node, old.slot), None)
            others = self.slots.pop(old.node, set()) - {old.slot}
            self.slots |= {old.node: others} if others else {}
        if new is not None:
            self.known[new.node, new.slot] = new
            self.slots.setdefault(new.node, set()).add(new.slot)
        for seen in filter(None, (old, new)):
            self._notify_jobs_in((seen.node, seen.slot))

    def observe_pod(self, uid: str, pod: Pod | None) -> None:
        """Record the present version of a pod that may reserve a GPU, or None when it is gone."""
        place = None
        if pod is not None and pod.reserves is not None and pod.home:
            place = (pod.home, pod.reserves)
        before = self.reserving.pop(uid, None)
        if before is not None and before != place:
            del self.reserved[before]
            self._update_place(before)
        if pod is None:
            self._drop_share(uid)
        elif place is not None:
            # The deletion of the earlier reservation pod may be seen later.
            self.reserving = {
                other: slot for other, slot in self.reserving.items() if slot != place
            }
            earlier, self.reserved[place] = self.reserved.get(place), pod
            self.reserving[uid] = place
            if earlier is None or earlier.finished != pod.finished:
                self._update_place(place)

    def claim_share(self, pod: Pod, *, planned: bool, tolerations: Tolerations = ()) -> None:
        """Claim the share of a pod, except the GPU time, unless a plan claims it (`planned`).

        The pod uses the share until it ends, even after its job is suspended, released or deleted.
        Once the pod is bound, its slot needs a GPU too. `tolerations`: its job's, if known.
        """
        claim = None if planned else _share_claim(pod)
        if claim is None:
            self._drop_share(pod.uid)
            return
        self.unplanned.add(pod.uid)
        self._ledger.claim(("part", pod.uid), claim)
        if pod.node_name:
            (slot,) = slot_units(pod.requests)
            self._claim_all(self.demand.keep(pod.uid, (pod.node_name, slot), tolerations))

    def follow(
        self, job_uid: str, places: Mapping[Place, Tolerations], *, others: tuple[str, ...]
    ) -> None:
        """Record the slots that a job needs, and the jobs that it must not share a card with."""
        self.jobs.add(job_uid)
        self.want(job_uid, places)
        self.apart.record(job_uid, others)

    def forget(self, job_uid: str) -> None:
        """Forget a job that is gone."""
        self.jobs.discard(job_uid)
        self.want(job_uid, {})
        self.apart.forget(job_uid)

    def want(self, job_uid: str, places: Mapping[Place, Tolerations]) -> None:
        """Replace the slots that a job needs, each with the tolerations of its reservation pod."""
        self._claim_all(self.demand.plan(job_uid, places))

    def with_cards(self, node: Node) -> Node:
        """Return a node with the resources of its slots, except their GPU time."""
        allocatable, troubles = dict(without_cards(node).allocatable), []
        # kubelet offers no GPU time of an unhealthy slot, so the time does not count here.
        for slot in sorted(self.slots.get(node.name, ())):
            gpu = self.known[node.name, slot]
            if not gpu.healthy:
                troubles.append(_why_unhealthy(gpu))
            elif not gpu.moved:
                allocatable |= capacity(slot, memory=gpu.memory)
        return replace(node, allocatable=allocatable, troubles=tuple(troubles))

    # --- derived state --------------------------------------------------------------------------

    def view(self, plan: Plan | None, pods: Iterable[Pod], *, job_uid: str) -> CardView:
        """Return the facts about cards that the next step of a job depends on."""
        shunned = self.shunned(job_uid)
        if plan is None or not plan.slots:
            return CardView(shunned=shunned)
        places = sorted(places_of(plan))
        uids = {pod.uid for pod in pods}
        gpus = [(place, self.known[place]) for place in places if place in self.known]
        parts = tuple(
            (gpu, sharer) for _, gpu in gpus for sharer in gpu.sharers if sharer.pod in uids
        )
        evicted = tuple((gpu.node, gpu.slot) for gpu, sharer in parts if sharer.evict)
        return CardView(
            unready=tuple(place for place in places if not self._is_ready(place)),
            lost=tuple(place for place, gpu in gpus if gpu.moved or not gpu.healthy),
            troubles={place: _why_unhealthy(gpu) for place, gpu in gpus if not gpu.healthy},
            evicted=evicted,
            rivals=tuple(sorted({uid for place in evicted for uid in self._priority_job(place)})),
            shunned=shunned,
            parts=parts,
        )

    def unreserved(self, plan: Plan | None) -> tuple[Place, ...]:
        """Return the slots of a plan without a known reservation pod.

        The agent recreates a deleted SharedGPU; until then the pod alone counts.
        """
        places = sorted(places_of(plan)) if plan is not None else ()
        return tuple(place for place in places if not self._is_reserved(place))

    def in_use(self, place: Place) -> bool:
        """Return whether a pod has GPU time of a slot."""
        node, slot = place
        claims = self._ledger.claims_on([node])
        return any(resource_of(slot) in claim.requests for claim in claims if not claim.kept)

    def shunned(self, job_uid: str) -> tuple[Place, ...]:
        """Return the slots of the jobs that a job must not share a card with."""
        return tuple(sorted(self.demand.slots_of(self.apart.separated_from(job_uid) - {job_uid})))

    # --- steps ----------------------------------------------------------------------------------

    def due(self, now: float) -> Iterator[Reserve | Unreserve]:
        """Yield the steps that are due, at most one for each slot; call `finish` after each step.

        A GPU is released once no plan has a replica in its slot and no pod has GPU time of the
        slot. A reservation pod that has ended is deleted, so that a pod of the same name can
        replace it.
        """
        needed = {_key(step): step for step in self._needed_steps()}
        # A step that is no longer needed is forgotten, unless it is being written.
        waiting = {key for key, again in self.pending.items() if math.isfinite(again)}
        for key in waiting - needed.keys():
            del self.pending[key]
            self._tries.pop(key, None)
        for key, step in needed.items():
            if now >= self.pending.get(key, now):
                self.pending[key] = math.inf
                yield step

    def finish(self, step: Reserve | Unreserve, now: float) -> None:
        """Record that a step was written or has failed.

        A step that has not taken effect is tried again after an exponential back-off.
        """
        key = _key(step)
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        pause = exponential_backoff(tries, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self.pending[key] = now + pause

    def _needed_steps(self) -> Iterator[Reserve | Unreserve]:
        wanted = self.demand.all()
        for place in sorted({*wanted, *self.reserved}):
            pod = self.reserved.get(place)
            if pod is None:
                if self._ledger.row(place[0]) is not None:
                    yield Reserve(place, wanted[place])
            elif pod.deleting:
                pass  # the next reservation pod is created after it is gone
            elif pod.finished or not (place in wanted or self.in_use(place)):
                yield Unreserve(place, pod)

    # --- helpers --------------------------------------------------------------------------------

    def _priority_job(self, place: Place) -> Iterator[str]:
        node, slot = place
        for claim in self._ledger.claims_on([node]):
            if claim.job and not claim.kept and has_priority(claim.requests, slot):
                yield claim.job

    def _is_reserved(self, place: Place) -> bool:
        gpu, pod = self.known.get(place), self.reserved.get(place)
        if pod is None or pod.finished:
            return False
        return bool(pod.node_name) if gpu is None else gpu.reservation == pod.uid

    def _is_ready(self, place: Place) -> bool:
        gpu, pod = self.known.get(place), self.reserved.get(place)
        if gpu is None or pod is None or not (gpu.healthy and gpu.card):
            return False
        stays = not (pod.finished or pod.deleting)
        return stays and gpu.reservation == pod.uid and not gpu.moved

    def _update_place(self, place: Place) -> None:
        self._claim(place)
        self._notify_jobs_in(place)

    def _drop_share(self, pod_uid: str) -> None:
        self.unplanned.discard(pod_uid)
        self._ledger.drop(("part", pod_uid))
        self._claim_all(self.demand.drop(pod_uid))

    def _claim_all(self, places: Iterable[Place]) -> None:
        for place in places:
            self._claim(place)

    def _claim(self, place: Place) -> None:
        """Claim a GPU for a slot that needs one, unless its reservation pod claims it."""
        key: Hashable = ("reservation", place)
        pod = self.reserved.get(place)
        if self.demand.wants(place) and (pod is None or pod.finished):
            self._ledger.claim(key, reserved_gpu(place))
        else:
            self._ledger.drop(key)

    def _notify_jobs_in(self, place: Place) -> None:
        for uid in self.demand.jobs_at(place):
            self._changed(uid)


def without_cards(node: Node) -> Node:
    """Return a node as Kubernetes shows it, without the resources of slots."""
    native = {name: number for name, number in node.allocatable.items() if not is_of_card(name)}
    return replace(node, allocatable=native, troubles=())


def _share_claim(pod: Pod) -> Claim | None:
    """Return the claim of a pod on its share of a GPU, except the GPU time.

    The result is None before the pod is pinned and after the pod has ended.
    """
    slots = list(slot_units(pod.requests))
    if pod.share is None or pod.finished or not pod.home or len(slots) != 1:
        return None
    return share_claim(pod.share, slots[0], pod.home, job=pod.owner_uid)


def with_slots_in_use(plan: Plan | None, job: TrainingJob, pods: Iterable[Pod]) -> Plan | None:
    """Return a plan with only the slots of the job's present replicas that have not ended."""
    if plan is None or not plan.slots:
        return plan
    ended = {pod.replica for pod in pods if pod.finished}
    slots = {key: slot for key, slot in slots_of(job, plan).items() if key not in ended}
    return replace(plan, slots=slots)


def places_of(plan: Plan) -> Collection[Place]:
    """Return the slots in which a plan has replicas."""
    return {(plan.assignment[key], slot) for key, slot in plan.slots.items()}


def _why_unhealthy(gpu: SharedGpu) -> str:
    return gpu.trouble or "it is unhealthy"


def _key(step: Reserve | Unreserve) -> _Key:
    return type(step), step.place
