"""A gang: all pods of one job in rank order, and the limits within which it is placed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.columns import LARGEST
from kfext.core.settings.table import Settings
from kfext.model.constraints import Constraints
from kfext.model.gang_terms import Exclusive
from kfext.model.gpu import CardNeed, Place, slot_units, without_slot_units
from kfext.model.job import TrainingJob
from kfext.model.limit import Awaited, Excluded, Limit, MaxNodes
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.quantity import Resources
from kfext.model.replica_group import ReplicaGroup
from kfext.model.replicas import by_replica
from kfext.names import COLOCATION

_LARGEST_TOTAL = 2**62


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a gang.

    `guaranteed`: whether its QoS class is Guaranteed, so that it cannot burst.
    `cpu_limit`: its CPU limit in millicores; None means that it has no limit.
    `card`: the need of its GPU share; None means that it has no share.
    """

    key: ReplicaKey
    requests: Resources
    constraints: Constraints
    guaranteed: bool
    cpu_limit: int | None
    card: CardNeed | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive members with equal requirements, which are placed together.

    `requests` has shape (resources,).
    """

    count: int
    requests: NDArray[np.int64]
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class Gang:
    """The members to place.

    `members`: all members, in rank order.
    `resources`: the names of the requested resources; arrays of amounts are in this order.
    `batches`: the same members, divided into batches.
    `total`: the sum of the requests of all members, shape (resources,).
    """

    members: tuple[Member, ...]
    resources: tuple[str, ...]
    batches: tuple[Batch, ...]
    total: NDArray[np.int64]

    @property
    def guaranteed(self) -> bool:
        """Whether no member can use more CPU or memory than it requests."""
        return all(member.guaranteed for member in self.members)

    @property
    def apart(self) -> bool:
        """Whether some members cannot share a node, so that one node cannot hold the gang."""
        return self.max_anti_affine > 1

    @property
    def max_anti_affine(self) -> int:
        """The largest number of members that one rule keeps on different nodes."""
        return max_anti_affine((batch.constraints, batch.count) for batch in self.batches)

    @property
    def largest(self) -> NDArray[np.int64]:
        """The largest request of one member, resource by resource."""
        most: NDArray[np.int64] = np.max([batch.requests for batch in self.batches], axis=0)
        return most


def max_anti_affine(pods: Iterable[tuple[Constraints, int]]) -> int:
    """Return the most pods that one rule keeps apart; `pods`: constraints, each with a count."""
    counts: dict[Exclusive, int] = {}
    for constraints, count in pods:
        for item in constraints.exclusive:
            counts[item] = counts.get(item, 0) + count
    return max(counts.values(), default=0)


def gang(members: Iterable[Member]) -> Gang:
    """Return the gang of members in rank order."""
    ordered = tuple(members)
    resources = tuple(sorted({name for member in ordered for name in member.requests}))
    batches = []
    start = 0
    for end in range(1, len(ordered) + 1):
        if end == len(ordered) or not _alike(ordered[start], ordered[end]):
            first = ordered[start]
            amounts = [min(first.requests.get(name, 0), LARGEST) for name in resources]
            requests = np.array(amounts, dtype=np.int64)
            batches.append(Batch(end - start, requests, first.constraints))
            start = end
    return gang_of(ordered, resources, batches)


def gang_of(
    members: Iterable[Member], resources: tuple[str, ...], batches: Sequence[Batch]
) -> Gang:
    """Return the gang of members that are already divided into batches."""
    totals = (
        sum(batch.count * int(batch.requests[number]) for batch in batches)
        for number in range(len(resources))
    )
    return Gang(
        members=tuple(members),
        resources=resources,
        batches=tuple(batches),
        total=np.array([min(total, _LARGEST_TOTAL) for total in totals], dtype=np.int64),
    )


def _alike(member: Member, other: Member) -> bool:
    # Replicas of one type share these objects; comparing their contents takes a microsecond.
    requests, constraints = other.requests, other.constraints
    return (member.requests is requests or member.requests == requests) and (
        member.constraints is constraints or member.constraints == constraints
    )


def present(job: TrainingJob, pods: Iterable[Pod]) -> dict[ReplicaKey, Pod]:
    """Return the pods of a job by replica, without terminating pods and pods beyond its size.

    The operator deletes pods beyond the number of replicas.
    """
    pods_by_replica = by_replica(pods)
    return {key: pods_by_replica[key] for key in job.within(pods_by_replica)}


def due_pods(job: TrainingJob, live: Mapping[ReplicaKey, Pod]) -> int:
    """Return the number of pods that a job should have now.

    The operator creates the pods of a type together, but only after the types that it depends on
    are ready or complete. `live`: the pods of the job that are not being deleted, by replica.
    """
    created = {key.type for key in live}
    due = (group for group in job.groups if not group.after or group.type.lower() in created)
    return sum(group.replicas for group in due)


def members_of(job: TrainingJob, pods: Iterable[Pod] = ()) -> list[Member]:
    """Return a member for each replica of a job, in rank order.

    A replica with a pod has the requests of this pod, which admission may have changed; a replica
    without a pod has the requests of its template.
    """
    existing = {pod.replica: pod for pod in pods}
    members = []
    owner: ReplicaGroup | Pod
    for key, group in job.replicas():
        # A queued job has no pods, and each lookup would hash its key.
        pod = existing.get(key) if existing else None
        if pod is None or pod.constraints is None:
            constraints, owner = group.constraints, group
        else:
            constraints, owner = pod.constraints, pod
        requests, card = owner.requests, group.share.need if group.share else None
        if card is not None and owner is not group:
            requests, card = _of_slot(requests, card)
        members.append(Member(key, requests, constraints, owner.guaranteed, owner.cpu_limit, card))
    return members


def _of_slot(requests: Resources, need: CardNeed) -> tuple[Resources, CardNeed | None]:
    """Return the requests and GPU share of an existing pod: only its own slot may serve it."""
    units = slot_units(requests)
    if not units:
        return requests, None  # the webhook missed it, so it uses a whole GPU
    slot, number = next(iter(units.items()))
    fixed = replace(need, units=number, slot=slot)
    return {**without_slot_units(requests), fixed.name: 1}, fixed


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits within which a gang is placed, or a reservation is made for it.

    Cached answers have the limits in their key. No field has a default, so that the type checker
    finds a limit that is not passed on.

    `on_nodes`: the limits on the nodes that the gang may use.
    `doubted`: the nodes that it uses only if it fits nowhere else.
    `closed`: the slots that it may not have a share of.
    `topology_keys`: keys of node labels, the widest domain first, such as the zone, then the rack.
    `assumed_burst`: the millicores that a pod without a CPU limit is assumed to use if it can; None
        means that CPU beyond requests does not count.
    """

    on_nodes: tuple[Limit, ...]
    doubted: frozenset[str]
    closed: tuple[Place, ...]
    topology_keys: tuple[str, ...]
    assumed_burst: int | None

    def with_terms(self, pods: Iterable[Constraints]) -> Self:
        """Return the limits for a gang of pods that may by themselves require a single node."""
        together = any(constraints.together for constraints in pods)
        return replace(self, on_nodes=(*self.on_nodes, MaxNodes(1))) if together else self

    @property
    def max_nodes(self) -> int | None:
        """The most nodes that the gang may use; None means any number."""
        numbers = (limit.number for limit in self.on_nodes if isinstance(limit, MaxNodes))
        return min(numbers, default=None)

    @property
    def after_failure(self) -> bool:
        """Whether nodes are excluded because the gang failed on them."""
        return any(isinstance(limit, Excluded) for limit in self.on_nodes)

    @property
    def per_node(self) -> tuple[Limit, ...]:
        """The limits that exclude single nodes."""
        return tuple(limit for limit in self.on_nodes if limit.why)

    def allow(self, nodes: Collection[str]) -> bool:
        """Return whether the whole gang may be on these nodes together."""
        return all(limit.allow_set(nodes) for limit in self.on_nodes)


def on_one_node(constraints: Iterable[Constraints], limits: Limits) -> bool:
    """Return whether all pods of a gang with these constraints must be on one node."""
    return limits.max_nodes == 1 or any(pod_constraints.together for pod_constraints in constraints)


def limits_of(
    settings: Settings,
    *,
    excluded: Iterable[str],
    doubted: frozenset[str] = frozenset(),
    closed: Iterable[Place] = (),
    awaited: frozenset[str] = frozenset(),
) -> Limits:
    """Return the limits of a job with these settings.

    The job failed on `excluded` nodes, and may fail on `doubted` nodes. In `closed` slots it would
    share a GPU with a job that it must not meet. The `awaited` nodes were added for another gang.
    """
    placement, names = settings.placement, frozenset(excluded)
    failed = [Excluded(names)] if names else []
    reserved = [Awaited(awaited)] if awaited else []
    return Limits(
        on_nodes=(*settings.node_limits.values(), *failed, *reserved),
        doubted=doubted,
        closed=tuple(closed),
        topology_keys=placement.topology_keys,
        assumed_burst=None if COLOCATION in settings.stated else placement.assumed_burst,
    )
