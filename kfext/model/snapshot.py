"""The cluster at one moment: all facts on which a placement decision may depend."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.model.gang_terms import GangTerm
from kfext.model.job import TrainingJob
from kfext.model.namespace import Namespace
from kfext.model.network_policy import NetworkPolicy
from kfext.model.networking import Port
from kfext.model.node import Node
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.policy import TrainingPolicy
from kfext.model.priority import PriorityClass
from kfext.model.quantity import Resources
from kfext.model.quota import Quota
from kfext.model.shared_gpu import SharedGpu
from kfext.model.volume import StorageClass, Volume, VolumeClaim


@dataclass(frozen=True, slots=True)
class RefusalRecord:
    """A step refused `count` times in a row. `left`: the seconds until its retry."""

    step: str
    count: int
    message: str = ""
    left: float = 0.0


@dataclass(frozen=True, slots=True)
class UnreservedRecord:
    """A slot of a job that has had no reserved GPU for a number of seconds."""

    node: str
    slot: int
    seconds: float


@dataclass(frozen=True, slots=True)
class JobClocks:
    """The facts about a job that only a controller knows and no object in the cluster states.

    Times are in seconds from the moment of the snapshot.

    `waited`: the time since the job last made progress.
    `unbound`: the time since a pod without a node reached or passed kfext's gate, by the pod's uid.
    `unreserved`: the slots of the job without a reserved GPU.
    `settled`: the time since its set of pods last changed.
    `hopeless`: the time since it stopped fitting even the empty cluster, or None.
    `resting`: the time until a refused step is tried again.
    `enlarged`: the time since an edit made it need more, or None.
    `turns`: its round among the jobs that take turns at the reservation; None outside of the queue.
    `lapsed`: whether its plan no longer claims capacity for pods that kfext does not hold back.
    `writing`: whether a step is being written. `assumed`: the plan of that step, as on the job,
        or empty. `assumed_workers`: its number of workers; None means that it stays the same.
    `refusals`: the steps that were refused for good. `unclaimed`: whether its plan claims nothing
        because of them.
    `succeeded`: the replicas with a pod that had succeeded and was deleted while the job ran.
    """

    waited: float = 0.0
    unbound: Mapping[str, float] = field(default_factory=dict)
    unreserved: tuple[UnreservedRecord, ...] = ()
    settled: float | None = None
    hopeless: float | None = None
    resting: float = 0.0
    enlarged: float | None = None
    turns: int | None = None
    lapsed: bool = False
    writing: bool = False
    assumed: str = ""
    assumed_workers: int | None = None
    refusals: tuple[RefusalRecord, ...] = ()
    unclaimed: bool = False
    succeeded: tuple[ReplicaKey, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservationRecord:
    """The reservation at the moment of a snapshot: see core.queue.reservation.Reservation.

    `kept`: the capacity held on each node. `until`: its expected end in epoch seconds, or None.
    `outdated`: whether it must be computed again because of a change.
    `held_for`: the seconds since capacity was first reserved without a break.
    """

    job_uid: str
    nodes: tuple[str, ...]
    waits_for: tuple[str, ...]
    until: float | None
    to_free: float
    kept: Mapping[str, Resources]
    outdated: bool
    held_for: float


@dataclass(frozen=True, slots=True)
class PromiseRecord:
    """The capacity of a node that is held for a job, for one pod or for the GPU of a slot.

    See state.reservations; the fields are as in core.ledger.claim.Claim.
    """

    job_uid: str
    node: str
    requests: Resources
    host_ports: tuple[Port, ...] = ()
    gang_terms: tuple[GangTerm, ...] = ()
    reserves: int | None = None


@dataclass(frozen=True, slots=True)
class CreationRecord:
    """A gang with missing pods, at the moment of a snapshot.

    `quiet`: the seconds since an awaited pod was created. `came`: the replicas that were created
        under its plan. `overdue`: whether kfext no longer waits for the others.
    """

    job_uid: str
    quiet: float = 0.0
    came: tuple[ReplicaKey, ...] = ()
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A start of a job, by its uid, that failed on a node, under the plan with this generation.

    `at`: the epoch seconds of the failure or, if it is `cured`, of the job's run on other nodes.
    `replica`: its first pod that failed. `twice`: whether the next pod of the replica failed too.
    `alone`: whether no pod on another node failed too, so that the node may be the cause.
    `ran`: whether it is no failure: the job ran for long where starts of other jobs had failed.
    """

    node: str
    job: str
    namespace: str
    series: str
    at: float
    generation: int = 0
    replica: ReplicaKey | None = None
    twice: bool = False
    alone: bool = True
    cured: bool = False
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects of all namespaces that placement depends on.

    `autoscaler`: whether there is an autoscaler. `can_ask`: whether kfext can ask it for nodes.
    `usage`: the usage of the namespaces in its stored form; empty if unknown, or if not counted.
    `namespaces`, `classes`: the namespaces and PriorityClasses by name.
    `limit_ranges`: the namespaces that have a LimitRange.

    The facts that only a controller knows have by default the values at its start: `clocks` by job
    uid, the reservation, whether reservations are `on_break`, the `promises`, the gangs that the
    operator is `creating`, in order, whether it is `crowded` with pods, and the `failed_starts`.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[TrainingJob, ...] = ()
    policies: tuple[TrainingPolicy, ...] = ()
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    cards: tuple[SharedGpu, ...] = ()
    quotas: tuple[Quota, ...] = ()
    limit_ranges: frozenset[str] = frozenset()
    network_policies: tuple[NetworkPolicy, ...] = ()
    volume_claims: tuple[VolumeClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    autoscaler: bool = False
    can_ask: bool = False
    clocks: Mapping[str, JobClocks] = field(default_factory=dict)
    reservation: ReservationRecord | None = None
    on_break: bool = False
    promises: tuple[PromiseRecord, ...] = ()
    creating: tuple[CreationRecord, ...] = ()
    crowded: bool = False
    usage: str = ""
    failed_starts: tuple[FailedStart, ...] = ()
