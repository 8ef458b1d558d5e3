"""The GPUs that jobs share: which are reserved, which should be, and what is known of each.

A GPU is reserved for a slot by a pod of kfext that requests it natively, so that Kubernetes counts
it. The pod is there while a plan has a replica in the slot or a pod has time of it. Before it is
seen, a claim in its place keeps the GPU free.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from kfext.core.ledger.cards import capacity, has_priority, is_of_card
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import part_claim, reserved_gpu, slots_of
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.situation import CardPart, CardView
from kfext.core.placement.gang import Limits, limits_of
from kfext.core.settings.table import Settings
from kfext.model.gpu import Place, parts_in, resource_of
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.node import Node
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.shared_gpu import SharedGpu
from kfext.state.apart import Apart
from kfext.state.card_demand import CardDemand, Tolerations


class Cards:
    """The GPUs that jobs share; enters on the ledger what is reserved.

    `changed` is called with the uid of a job for which a card has changed.
    `apart`: which jobs are not placed on one card again.
    """

    def __init__(self, ledger: Ledger, changed: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._changed = changed
        self.apart = Apart()
        self._known: dict[Place, SharedGpu] = {}
        self._slots: dict[str, set[int]] = {}
        self._pods: dict[Place, Pod] = {}
        self._place_of: dict[str, Place] = {}
        self._demand = CardDemand()

    # --- what is seen ---------------------------------------------------------------------------

    def all(self) -> tuple[SharedGpu, ...]:
        """Return every slot that an agent has reported."""
        return tuple(self._known.values())

    def reservations(self) -> tuple[Pod, ...]:
        """Return the pods that reserve GPUs."""
        return tuple(self._pods.values())

    def observe(self, old: SharedGpu | None, new: SharedGpu | None) -> None:
        """Take in a slot as it stands; None for `new` when it is gone."""
        if old is not None:
            self._known.pop((old.node, old.slot), None)
            left = self._slots.pop(old.node, set()) - {old.slot}
            self._slots |= {old.node: left} if left else {}
        if new is not None:
            self._known[new.node, new.slot] = new
            self._slots.setdefault(new.node, set()).add(new.slot)
        for seen in filter(None, (old, new)):
            self._note((seen.node, seen.slot))

    def take_pod(self, uid: str, pod: Pod | None) -> None:
        """Take in a pod, which may reserve a GPU; None when it is gone."""
        place = None
        if pod is not None and pod.reserves is not None and pod.home:
            place = (pod.home, pod.reserves)
        before = self._place_of.pop(uid, None)
        if before is not None and before != place:
            del self._pods[before]
            self._recount(before)
        if pod is None:
            self._drop_part(uid)
        elif place is not None:
            # The end of the one before it may be seen later.
            self._place_of = {one: at for one, at in self._place_of.items() if at != place}
            known, self._pods[place] = self._pods.get(place), pod
            self._place_of[uid] = place
            if known is None or known.finished != pod.finished:
                self._recount(place)

    def keep(self, pod: Pod, *, planned: bool, tolerations: Tolerations = ()) -> None:
        """Have a pod claim what it has of a GPU beside its time, unless the plan of its job does.

        It uses that until it has ended, also after its job was suspended, released or deleted. Once
        it is bound its slot needs a GPU too. `tolerations`: of its job, as far as they are known.
        """
        claim = None if planned else _part_claim(pod)
        if claim is None:
            self._drop_part(pod.uid)
            return
        self._ledger.claim(("part", pod.uid), claim)
        if pod.node_name:
            (slot,) = parts_in(pod.requests)
            self._claim_all(self._demand.keep(pod.uid, (pod.node_name, slot), tolerations))

    def want(self, job_uid: str, places: Mapping[Place, Tolerations]) -> None:
        """Take in for which slots a job needs GPUs, with what the pods that reserve them tolerate.

        It replaces what the job has needed before.
        """
        self._claim_all(self._demand.plan(job_uid, places))

    def with_cards(self, node: Node) -> Node:
        """Return a node with what its slots have beside their time."""
        allocatable, troubles = dict(without_cards(node).allocatable), []
        # Not by the time of its slots: kubelet has none of those that are in trouble.
        for slot in sorted(self._slots.get(node.name, ())):
            known = self._known[node.name, slot]
            if not known.healthy:
                troubles.append(_trouble(known))
            elif not known.moved:
                allocatable |= capacity(slot, memory=known.memory)
        return replace(node, allocatable=allocatable, troubles=tuple(troubles))

    # --- what follows ---------------------------------------------------------------------------

    def view(self, plan: Plan | None, pods: Iterable[Pod], *, job_uid: str) -> CardView:
        """Return what the next step of a job under a plan depends on."""
        shunned = self._shunned(job_uid)
        if plan is None or not plan.slots:
            return CardView(shunned=shunned)
        places = sorted(places_of(plan))
        uids = {pod.uid for pod in pods}
        found = [(place, one) for place in places if (one := self._known.get(place)) is not None]
        parts = tuple(
            CardPart(place, sharer, others=len(one.sharers) - 1, card=one.card)
            for place, one in found
            for sharer in one.sharers
            if sharer.pod in uids
        )
        evicted = tuple(part.place for part in parts if part.sharer.evict)
        return CardView(
            unready=tuple(place for place in places if not self._ready(place)),
            lost=tuple(place for place, one in found if one.moved or not one.healthy),
            troubles={place: _trouble(one) for place, one in found if not one.healthy},
            evicted=evicted,
            rivals=tuple(sorted({uid for place in evicted for uid in self._high(place)})),
            shunned=shunned,
            parts=parts,
        )

    def unreserved(self, plan: Plan | None) -> tuple[Place, ...]:
        """Return the slots of a plan for which no pod is known to have reserved a GPU.

        Of a slot that was deleted the agent makes another one, so the pod alone counts meanwhile.
        """
        places = sorted(places_of(plan)) if plan is not None else ()
        return tuple(place for place in places if not self._reserved(place))

    def limits(self, settings: Settings, state: JobState, *, job_uid: str, now: float) -> Limits:
        """Return the limits within which a job with these settings is placed now."""
        closed = self._shunned(job_uid)
        return limits_of(settings, excluded=state.excluded_at(now), closed=closed)

    def on(self, nodes: Iterable[str]) -> frozenset[Place]:
        """Return the slots of some nodes in which jobs have parts."""
        return self._demand.on(set(nodes))

    def jobs(self) -> Collection[str]:
        """Return the uids of the jobs that need GPUs for slots."""
        return self._demand.jobs()

    def wanted(self) -> Mapping[Place, Tolerations]:
        """Return which slots need GPUs, and what the first job or pod of each tolerates."""
        return self._demand.all()

    def reserved(self) -> Collection[Place]:
        """Return the slots for which there is a pod that reserves a GPU."""
        return self._pods.keys()

    def pod(self, place: Place) -> Pod | None:
        """Return the pod that reserves a GPU for a slot."""
        return self._pods.get(place)

    def in_use(self, place: Place) -> bool:
        """Return whether a pod has time of the slot."""
        node, slot = place
        claims = self._ledger.claims_on([node])
        return any(resource_of(slot) in one.requests for one in claims if not one.kept)

    def _shunned(self, job_uid: str) -> tuple[Place, ...]:
        """Return the slots in which a job would meet one from which it is kept apart."""
        others = self.jobs() if self.apart.alone(job_uid) else self.apart.of(job_uid)
        return tuple(sorted(self._demand.of({*others} - {job_uid})))

    def _high(self, place: Place) -> Iterator[str]:
        """Yield the uid of the job of high priority in a slot."""
        node, slot = place
        for claim in self._ledger.claims_on([node]):
            if claim.job and not claim.kept and has_priority(claim.requests, slot):
                yield claim.job

    def _reserved(self, place: Place) -> bool:
        known, pod = self._known.get(place), self._pods.get(place)
        if pod is None or pod.finished:
            return False
        return bool(pod.node_name) if known is None else known.reservation == pod.uid

    def _ready(self, place: Place) -> bool:
        known, pod = self._known.get(place), self._pods.get(place)
        if known is None or pod is None or not (known.healthy and known.card):
            return False
        stays = not (pod.finished or pod.deleting)
        return stays and known.reservation == pod.uid and not known.moved

    def _recount(self, place: Place) -> None:
        self._claim(place)
        self._note(place)

    def _drop_part(self, pod_uid: str) -> None:
        self._ledger.drop(("part", pod_uid))
        self._claim_all(self._demand.drop(pod_uid))

    def _claim_all(self, places: Iterable[Place]) -> None:
        for place in places:
            self._claim(place)

    def _claim(self, place: Place) -> None:
        """Enter on the ledger that a slot needs a GPU, unless its pod claims that itself."""
        key: Hashable = ("reservation", place)
        pod = self._pods.get(place)
        if self._demand.wants(place) and (pod is None or pod.finished):
            self._ledger.claim(key, reserved_gpu(place))
        else:
            self._ledger.drop(key)

    def _note(self, place: Place) -> None:
        for uid in self._demand.jobs_at(place):
            self._changed(uid)


def without_cards(node: Node) -> Node:
    """Return a node as Kubernetes shows it."""
    own = {name: number for name, number in node.allocatable.items() if not is_of_card(name)}
    return replace(node, allocatable=own, troubles=())


def _part_claim(pod: Pod) -> Claim | None:
    """Return what a pod has of a GPU beside its time, None before it is pinned or after its end."""
    slots = list(parts_in(pod.requests))
    if pod.share is None or pod.finished or not pod.home or len(slots) != 1:
        return None
    return part_claim(pod.share, slots[0], pod.home, job=pod.owner_uid)


def with_slots_in_use(plan: Plan | None, job: TrainingJob, pods: Iterable[Pod]) -> Plan | None:
    """Return a plan with the slots of those replicas alone that the job has and that can go on."""
    if plan is None or not plan.slots:
        return plan
    ended = {pod.replica for pod in pods if pod.finished}
    slots = {key: slot for key, slot in slots_of(job, plan).items() if key not in ended}
    return replace(plan, slots=slots)


def places_of(plan: Plan) -> Collection[Place]:
    """Return the slots in which a plan has replicas."""
    return {(plan.assignment[key], slot) for key, slot in plan.slots.items()}


def _trouble(known: SharedGpu) -> str:
    return known.trouble or "it is unhealthy"
