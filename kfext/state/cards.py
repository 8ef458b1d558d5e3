"""The GPUs that jobs share: which are reserved, which should be, and what is known of each.

A GPU is reserved for a slot by a pod of kfext that requests it natively, so that Kubernetes counts
it. The pod is there while a plan has a replica in the slot or a pod has time of it. Before it is
seen, a claim in its place keeps the GPU free.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from kfext.core.ledger.cards import capacity, has_priority, is_of_card
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import part_claim, reserved_gpu, slots_of
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.situation import CardView
from kfext.model.backoff import exponential_backoff
from kfext.model.constraints import Toleration
from kfext.model.gpu import Place, parts_in, resource_of
from kfext.model.job import TrainingJob
from kfext.model.job_state import MOST_APART
from kfext.model.node import Node
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.shared_gpu import SharedGpu

Tolerations = tuple[Toleration, ...]
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_Key = tuple[type, Place]
"""A kind of step, and for which slot."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Create the pod that reserves a GPU for a slot; that it exists is a success too."""

    place: Place
    tolerations: Tolerations


@dataclass(frozen=True, slots=True)
class Unreserve:
    """Delete the pod that reserves a GPU for a slot: nothing uses it, or it has ended."""

    place: Place
    pod: Pod


class Apart:
    """By uid, the jobs that must not share a GPU again, as they lost too much to each other.

    The state of a job that had to leave names the others. It holds for both: which of them comes
    back to the other does not matter. A job that had to leave as many jobs as its state can hold
    shares no GPU.
    """

    def __init__(self) -> None:
        self._left: dict[str, tuple[str, ...]] = {}
        self._leavers: dict[str, set[str]] = {}
        self._alone: set[str] = set()

    def note(self, job_uid: str, left: tuple[str, ...]) -> None:
        """Register beside which jobs a job had to leave a GPU, in place of those known before."""
        before = self._left.pop(job_uid, ())
        self._alone.discard(job_uid)
        if left:
            self._left[job_uid] = left
        if len(left) >= MOST_APART:
            self._alone.add(job_uid)
        for other in {*before}.difference(left):
            self._drop(other, job_uid)
        for other in {*left}.difference(before):
            self._leavers.setdefault(other, set()).add(job_uid)

    def forget(self, job_uid: str) -> None:
        """Register that a job is gone."""
        self.note(job_uid, ())
        self._leavers.pop(job_uid, None)

    def of(self, job_uid: str) -> AbstractSet[str]:
        """Return the jobs beside which a job is not placed again; some of them may be gone."""
        alone = self._alone - {job_uid}
        return {*self._left.get(job_uid, ()), *self._leavers.get(job_uid, ()), *alone}

    def alone(self, job_uid: str) -> bool:
        """Return whether a job is placed beside no other job any more."""
        return job_uid in self._alone

    def _drop(self, other: str, leaver: str) -> None:
        leavers = self._leavers.get(other, set())
        leavers.discard(leaver)
        if not leavers:
            self._leavers.pop(other, None)


class CardDemand:
    """The slots that need GPUs, each with what the pod that reserves its GPU tolerates.

    `by_job`: the slots of the plan of a job. `by_pod`: the slot of a pod that no plan accounts for.
    A method that changes them returns the slots that may be needed now, or no longer.
    """

    def __init__(self) -> None:
        self.by_job: dict[str, Mapping[Place, Tolerations]] = {}
        self.by_pod: dict[str, tuple[Place, Tolerations]] = {}

    def plan(self, job_uid: str, places: Mapping[Place, Tolerations]) -> Collection[Place]:
        """Register which slots the plan of a job needs, in place of those it needed before."""
        before = self.by_job.pop(job_uid, {})
        if places:
            self.by_job[job_uid] = places
        return before.keys() ^ places.keys()

    def keep(self, pod_uid: str, place: Place, tolerations: Tolerations) -> Collection[Place]:
        """Register that a pod has a part of a slot and no plan accounts for it.

        What its job tolerated holds on after the job is gone, and then only this remembers it.
        """
        before = self.by_pod.get(pod_uid)
        self.by_pod[pod_uid] = place, tolerations or (before[1] if before else ())
        return {place} ^ ({before[0]} if before else set())

    def drop(self, pod_uid: str) -> Collection[Place]:
        """Register that a pod has ended, or that a plan accounts for it."""
        before = self.by_pod.pop(pod_uid, None)
        return () if before is None else {before[0]}

    def jobs_at(self, place: Place) -> list[str]:
        """Return the uids of the jobs whose plans need a slot."""
        return [uid for uid, places in self.by_job.items() if place in places]

    def of(self, job_uids: Iterable[str]) -> set[Place]:
        """Return the slots that the plans of some jobs need."""
        return {place for uid in job_uids for place in self.by_job.get(uid, ())}

    def on(self, nodes: Collection[str]) -> frozenset[Place]:
        """Return the slots of some nodes that are needed."""
        return frozenset(place for place, _ in self._each() if place[0] in nodes)

    def wants(self, place: Place) -> bool:
        """Return whether a slot is needed."""
        return any(place == other for other, _ in self._each())

    def all(self) -> Mapping[Place, Tolerations]:
        """Return each slot with what its first job or pod tolerates, jobs first."""
        found: dict[Place, Tolerations] = {}
        for place, tolerations in self._each():
            found.setdefault(place, tolerations)
        return found

    def _each(self) -> Iterator[tuple[Place, Tolerations]]:
        for places in self.by_job.values():
            yield from places.items()
        yield from self.by_pod.values()


class Cards:
    """The GPUs that jobs share; claims on the ledger what is reserved. Times are monotonic seconds.

    `apart`: which jobs are not placed on one card again.
    `demand`: which slots need GPUs.
    `known`: the slots that agents have reported. `slots`: their numbers, by node.
    `reserved`: the pods that reserve GPUs. `reserving`: the slots of these pods, by uid.
    `parts`: the uids of the pods with parts that no plan claims.
    `jobs`: the uids of the jobs that share GPUs.
    `pending`: when each step that was begun may be tried again; infinity while it is written.
    `changed` is called with the uid of a job for which a card has changed.

    Callers look at these before they call, so that nothing here runs for jobs, pods and nodes
    without a share of a GPU.
    """

    def __init__(self, ledger: Ledger, changed: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._changed = changed
        self.apart, self.demand = Apart(), CardDemand()
        self.known: dict[Place, SharedGpu] = {}
        self.slots: dict[str, set[int]] = {}
        self.reserved: dict[Place, Pod] = {}
        self.reserving: dict[str, Place] = {}
        self.parts: set[str] = set()
        self.jobs: set[str] = set()
        self.pending: dict[_Key, float] = {}
        self._tries: dict[_Key, int] = {}

    # --- what is seen ---------------------------------------------------------------------------

    def observe(self, old: SharedGpu | None, new: SharedGpu | None) -> None:
        """Take in a slot as it stands; None for `new` when it is gone."""
        if old is not None:
            self.known.pop((old.node, old.slot), None)
            left = self.slots.pop(old.node, set()) - {old.slot}
            self.slots |= {old.node: left} if left else {}
        if new is not None:
            self.known[new.node, new.slot] = new
            self.slots.setdefault(new.node, set()).add(new.slot)
        for seen in filter(None, (old, new)):
            self._note((seen.node, seen.slot))

    def take_pod(self, uid: str, pod: Pod | None) -> None:
        """Take in a pod, which may reserve a GPU; None when it is gone."""
        place = None
        if pod is not None and pod.reserves is not None and pod.home:
            place = (pod.home, pod.reserves)
        before = self.reserving.pop(uid, None)
        if before is not None and before != place:
            del self.reserved[before]
            self._recount(before)
        if pod is None:
            self._drop_part(uid)
        elif place is not None:
            # The end of the one before it may be seen later.
            self.reserving = {other: at for other, at in self.reserving.items() if at != place}
            known, self.reserved[place] = self.reserved.get(place), pod
            self.reserving[uid] = place
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
        self.parts.add(pod.uid)
        self._ledger.claim(("part", pod.uid), claim)
        if pod.node_name:
            (slot,) = parts_in(pod.requests)
            self._claim_all(self.demand.keep(pod.uid, (pod.node_name, slot), tolerations))

    def follow(
        self, job_uid: str, places: Mapping[Place, Tolerations], *, left: tuple[str, ...]
    ) -> None:
        """Register the slots for which a job that shares GPUs needs GPUs, and the jobs it left."""
        self.jobs.add(job_uid)
        self.want(job_uid, places)
        self.apart.note(job_uid, left)

    def forget(self, job_uid: str) -> None:
        """Register that a job is gone."""
        self.jobs.discard(job_uid)
        self.want(job_uid, {})
        self.apart.forget(job_uid)

    def want(self, job_uid: str, places: Mapping[Place, Tolerations]) -> None:
        """Take in for which slots a job needs GPUs, with what the pods that reserve them tolerate.

        It replaces what the job has needed before.
        """
        self._claim_all(self.demand.plan(job_uid, places))

    def with_cards(self, node: Node) -> Node:
        """Return a node with what its slots have beside their time."""
        allocatable, troubles = dict(without_cards(node).allocatable), []
        # Not by the time of its slots: kubelet has none of those that are in trouble.
        for slot in sorted(self.slots.get(node.name, ())):
            known = self.known[node.name, slot]
            if not known.healthy:
                troubles.append(_trouble(known))
            elif not known.moved:
                allocatable |= capacity(slot, memory=known.memory)
        return replace(node, allocatable=allocatable, troubles=tuple(troubles))

    # --- what follows ---------------------------------------------------------------------------

    def view(self, plan: Plan | None, pods: Iterable[Pod], *, job_uid: str) -> CardView:
        """Return what the next step of a job under a plan depends on."""
        shunned = self.shunned(job_uid)
        if plan is None or not plan.slots:
            return CardView(shunned=shunned)
        places = sorted(places_of(plan))
        uids = {pod.uid for pod in pods}
        found = [(place, self.known[place]) for place in places if place in self.known]
        parts = tuple(
            (gpu, sharer) for _, gpu in found for sharer in gpu.sharers if sharer.pod in uids
        )
        evicted = tuple((gpu.node, gpu.slot) for gpu, sharer in parts if sharer.evict)
        return CardView(
            unready=tuple(place for place in places if not self._ready(place)),
            lost=tuple(place for place, gpu in found if gpu.moved or not gpu.healthy),
            troubles={place: _trouble(gpu) for place, gpu in found if not gpu.healthy},
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

    def in_use(self, place: Place) -> bool:
        """Return whether a pod has time of the slot."""
        node, slot = place
        claims = self._ledger.claims_on([node])
        return any(resource_of(slot) in claim.requests for claim in claims if not claim.kept)

    def shunned(self, job_uid: str) -> tuple[Place, ...]:
        """Return the slots in which a job would meet one from which it is kept apart."""
        others = self.demand.by_job if self.apart.alone(job_uid) else self.apart.of(job_uid)
        return tuple(sorted(self.demand.of({*others} - {job_uid})))

    # --- steps ----------------------------------------------------------------------------------

    def due(self, now: float) -> Iterator[Reserve | Unreserve]:
        """Yield what is to be done now, at most one step for each slot; call `finish` after it.

        A GPU is given back at once when no plan has a replica in its slot and no pod has time of
        it. A pod that has ended reserves nothing, so it makes way for the next one of its name.
        """
        needed = {_key(step): step for step in self._needed()}
        # A step that is not needed any more is not waited for, unless it is being written.
        waiting = {key for key, at in self.pending.items() if math.isfinite(at)}
        for key in waiting - needed.keys():
            del self.pending[key]
            self._tries.pop(key, None)
        for key, step in needed.items():
            if now >= self.pending.get(key, now):
                self.pending[key] = math.inf
                yield step

    def finish(self, step: Reserve | Unreserve, now: float) -> None:
        """Register that a step was written or has failed.

        If nothing comes of the step, it is tried again, later each time.
        """
        key = _key(step)
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        pause = exponential_backoff(tries, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self.pending[key] = now + pause

    def _needed(self) -> Iterator[Reserve | Unreserve]:
        wanted = self.demand.all()
        for place in sorted({*wanted, *self.reserved}):
            pod = self.reserved.get(place)
            if pod is None:
                if self._ledger.row(place[0]) is not None:
                    yield Reserve(place, wanted[place])
            elif pod.deleting:
                pass  # it makes way for the next one once it is gone
            elif pod.finished or not (place in wanted or self.in_use(place)):
                yield Unreserve(place, pod)

    # --- inside ---------------------------------------------------------------------------------

    def _high(self, place: Place) -> Iterator[str]:
        """Yield the uid of the job of high priority in a slot."""
        node, slot = place
        for claim in self._ledger.claims_on([node]):
            if claim.job and not claim.kept and has_priority(claim.requests, slot):
                yield claim.job

    def _reserved(self, place: Place) -> bool:
        known, pod = self.known.get(place), self.reserved.get(place)
        if pod is None or pod.finished:
            return False
        return bool(pod.node_name) if known is None else known.reservation == pod.uid

    def _ready(self, place: Place) -> bool:
        known, pod = self.known.get(place), self.reserved.get(place)
        if known is None or pod is None or not (known.healthy and known.card):
            return False
        stays = not (pod.finished or pod.deleting)
        return stays and known.reservation == pod.uid and not known.moved

    def _recount(self, place: Place) -> None:
        self._claim(place)
        self._note(place)

    def _drop_part(self, pod_uid: str) -> None:
        self.parts.discard(pod_uid)
        self._ledger.drop(("part", pod_uid))
        self._claim_all(self.demand.drop(pod_uid))

    def _claim_all(self, places: Iterable[Place]) -> None:
        for place in places:
            self._claim(place)

    def _claim(self, place: Place) -> None:
        """Enter on the ledger that a slot needs a GPU, unless its pod claims that itself."""
        key: Hashable = ("reservation", place)
        pod = self.reserved.get(place)
        if self.demand.wants(place) and (pod is None or pod.finished):
            self._ledger.claim(key, reserved_gpu(place))
        else:
            self._ledger.drop(key)

    def _note(self, place: Place) -> None:
        for uid in self.demand.jobs_at(place):
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


def _key(step: Reserve | Unreserve) -> _Key:
    return type(step), step.place
