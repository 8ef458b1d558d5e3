"""The parts of a pod that count for placement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any

from kfext.model.bounds import bounded_name, bounded_resources
from kfext.model.constraints import Constraints, parse_constraints
from kfext.model.cpu_size import TrainerCpu, resize_problem, trainer_cpu
from kfext.model.gang_terms import GangTerm
from kfext.model.gpu import SLOT, GpuShare, decode_terms, slot_in
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.pod_bounds import trimmed
from kfext.model.podspec import (
    container_named,
    cpu_limit,
    is_best_effort,
    is_guaranteed,
    pod_requests,
)
from kfext.model.qos import QoS
from kfext.model.quantity import Resources
from kfext.model.timestamps import timestamp
from kfext.model.tolerant import controller_in, mapping, sequence, strings, text
from kfext.model.verdict import Verdict
from kfext.names import (
    CHECKPOINT_REQUEST,
    DEFAULT_SCHEDULER,
    GATE,
    GPU_NAMESPACE,
    GPU_SLOT,
    GPU_TERMS,
    KATIB_COLLECTOR,
    NEW_NODES_NAMESPACE,
    PLACEHOLDER_OF,
)

_LONGEST_MESSAGE = 1024
_LARGEST_REQUEST = 10**9
_MAX_KEYS = 8192
"""The most cached replica keys; the cache makes equal keys the same object."""


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A replica of a job: its type, in lower case as on the pod's label, and its index."""

    type: str
    index: int


@dataclass(frozen=True, slots=True)
class PodDemand:
    """The fields of a `Pod` that are equal for most pods of a template; its node is not in them."""

    gates: int
    gate: int | None
    requests: Resources
    cpu_limit: int | None
    guaranteed: bool
    best_effort: bool
    trainer: TrainerCpu | None
    constraints: Constraints
    affinity: Mapping[str, Any]
    priority: int
    on_host: bool
    scheduler: str
    collected: bool

    @property
    def gated(self) -> bool:
        """Whether kfext's gate is among its gates."""
        return self.gate is not None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    `owner_uid`: the uid of the training job that controls the pod; empty if none does.
    `replica`: the replica that its labels name, or None.
    `node_name`: the node of its binding; empty if it is not bound.
    `pinned_to`: the node of its pin; None means that it has no pin, like a gated pod.
    `gates`: the number of its scheduling gates.
    `gate`: the position of kfext's gate among them, or None.
    `cpu_limit`: the millicores that it can use; None means that it has no limit.
    `trainer`: the CPU of its training container, or None for a pod that cannot be resized.
    `constraints`: stored only for gated pods, and for pinned or refused pods without a node.
    `affinity`: stored only for gated pods, as kfext patches no other pods.
    `host_ports`: the ports of its node that it uses.
    `gang_terms`: the affinity and anti-affinity between the pods of its job.
    `unschedulable`: why kube-scheduler found no node for it, in words; empty if it has not said so.
    `resize_problem`: why the kubelet has not carried out a resize, or None.
    `annotated`: whether it has any annotation.
    `checkpoint_request`: the number of the last checkpoint request to its job; 0 before the first.
    `reserves`: the slot that it reserves a GPU for; None for a pod that is no reservation pod.
    `placeholder_of`: the uid of the job that it is a placeholder for; empty for other pods.
    `share`: the terms of its GPU share, or None.
    `created`: seconds since the epoch.
    `on_host`: whether it uses the host network.
    `collected`: whether Katib's collector prints the output of its training container.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    owner_uid: str = ""
    replica: ReplicaKey | None = None
    node_name: str = ""
    pinned_to: str | None = None
    phase: str = "Pending"
    deleting: bool = False
    gates: int = 0
    gate: int | None = None
    requests: Resources = field(default_factory=dict)
    cpu_limit: int | None = None
    guaranteed: bool = False
    best_effort: bool = False
    trainer: TrainerCpu | None = None
    constraints: Constraints | None = None
    host_ports: tuple[tuple[str, int], ...] = ()
    gang_terms: tuple[GangTerm, ...] = ()
    affinity: Mapping[str, Any] | None = None
    unschedulable: str = ""
    resize_problem: Verdict | None = None
    annotated: bool = False
    checkpoint_request: int = 0
    reserves: int | None = None
    placeholder_of: str = ""
    share: GpuShare | None = None
    created: float = 0.0
    priority: int = 0
    on_host: bool = False
    scheduler: str = DEFAULT_SCHEDULER
    collected: bool = False

    @property
    def qos(self) -> QoS:
        """Its QoS class; a pod beyond the bounds counts as Burstable."""
        if self.guaranteed:
            return QoS.GUARANTEED
        return QoS.BEST_EFFORT if self.best_effort else QoS.BURSTABLE

    @property
    def gated(self) -> bool:
        """Whether kfext's gate holds the pod."""
        return self.gate is not None

    @property
    def has_slot(self) -> bool:
        """Whether the pod seems to request a GPU share, by the names of its resources."""
        return any(name.startswith(SLOT) for name in self.requests)

    @property
    def behind_gate(self) -> bool:
        """Whether kfext has yet to remove its gate: a pod that is being deleted never starts."""
        return self.gated and not self.deleting

    @property
    def finished(self) -> bool:
        """Whether the pod has ended and uses no resources."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def loose(self) -> bool:
        """Whether kube-scheduler may choose its node: it is neither gated by kfext nor pinned."""
        return not (self.gated or self.home or self.finished)

    @property
    def untried(self) -> bool:
        """Whether a scheduler has not tried the pod yet, and may bind it to any node."""
        return self.loose and not (self.gates or self.unschedulable or self.deleting)

    @property
    def home(self) -> str:
        """The node that the pod occupies: the node of its binding, or of its pin, or none."""
        return self.node_name or self.pinned_to or ""


def parse_pod(raw: Mapping[str, Any], *, demand: PodDemand | None = None) -> Pod:
    """Return a pod from its JSON object. Never raises.

    `demand`, if any, must be `parse_demand` of the spec and status; then only nodeName is read from
    the spec. Strings that are probably equal in many pods are interned.
    """
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    status, (kind, owner_uid) = mapping(raw.get("status")), controller_of(metadata)
    labels, annotations = strings(metadata.get("labels")), strings(metadata.get("annotations"))
    if demand is None:
        demand = parse_demand(spec, status, trainer=kind.container if kind else "")
    gated, node_name = demand.gated, intern(bounded_name(spec.get("nodeName")))
    namespace = intern(text(metadata.get("namespace")))
    constraints = demand.constraints.scoped(namespace)
    unschedulable = intern(_unschedulable(status))
    pinned_to = None if gated else constraints.pinned_to
    needed = gated or ((pinned_to or unschedulable) and not node_name)
    return Pod(
        namespace=namespace,
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        resource_version=text(metadata.get("resourceVersion")),
        owner_uid=intern(owner_uid),
        replica=replica_of(labels, kind),
        node_name=node_name,
        pinned_to=pinned_to,
        phase=intern(text(status.get("phase")) or "Pending"),
        deleting=bool(metadata.get("deletionTimestamp")),
        gates=demand.gates,
        gate=demand.gate,
        requests=demand.requests,
        cpu_limit=demand.cpu_limit,
        guaranteed=demand.guaranteed,
        best_effort=demand.best_effort,
        trainer=demand.trainer,
        constraints=constraints if needed else None,
        host_ports=constraints.host_ports,
        gang_terms=constraints.gang_terms,
        affinity=demand.affinity if gated else None,
        unschedulable=unschedulable,
        resize_problem=resize_problem(status),
        annotated=bool(annotations),
        checkpoint_request=_request_number(annotations.get(CHECKPOINT_REQUEST, "")),
        reserves=slot_in(labels.get(GPU_SLOT, "")) if namespace == GPU_NAMESPACE else None,
        placeholder_of=labels.get(PLACEHOLDER_OF, "") if namespace == NEW_NODES_NAMESPACE else "",
        share=decode_terms(annotations[GPU_TERMS]) if GPU_TERMS in annotations else None,
        created=timestamp(metadata.get("creationTimestamp")),
        priority=demand.priority,
        on_host=demand.on_host,
        scheduler=demand.scheduler,
        collected=demand.collected,
    )


def controller_of(metadata: Mapping[str, Any]) -> tuple[JobKind | None, str]:
    """Return the kind and uid of the training job that controls a pod, else (None, "")."""
    owner, labels = controller_in(metadata), mapping(metadata.get("labels"))
    for kind in KINDS.values():
        if owner and (uid := kind.owner_of(owner, labels)):
            return kind, uid
    return None, ""


def replica_of(labels: Mapping[str, str], kind: JobKind | None) -> ReplicaKey | None:
    """Return the replica that the labels of a pod name, by the kind of its job, or None."""
    named = kind.replica_of(labels) if kind else None
    return None if named is None else _replica_key(*named)


def parse_demand(spec: Mapping[str, Any], status: Mapping[str, Any], *, trainer: str) -> PodDemand:
    """Return the demand of a pod; the status shows what the kubelet has allocated. Never raises.

    `trainer`: the name of its training container; empty for a pod of no job.
    """
    priority, constraints = spec.get("priority"), parse_constraints(spec)
    gates = [mapping(gate).get("name") for gate in sequence(spec.get("schedulingGates"))]
    bounded_spec = trimmed(spec) if constraints.excess else spec
    return PodDemand(
        gates=len(gates),
        gate=gates.index(GATE) if GATE in gates else None,
        requests=bounded_resources(pod_requests(bounded_spec, status)),
        cpu_limit=None if constraints.excess else cpu_limit(spec),
        guaranteed=not constraints.excess and is_guaranteed(spec),
        best_effort=not constraints.excess and is_best_effort(spec),
        trainer=None if constraints.excess else trainer_cpu(spec, status, container=trainer),
        constraints=constraints,
        affinity={} if constraints.excess else mapping(spec.get("affinity")),
        priority=priority if type(priority) is int else 0,
        on_host=spec.get("hostNetwork") is True,
        scheduler=intern(bounded_name(spec.get("schedulerName")) or DEFAULT_SCHEDULER),
        collected=container_named(spec, KATIB_COLLECTOR) is not None,
    )


@lru_cache(maxsize=_MAX_KEYS)
def _replica_key(type_: str, index: int) -> ReplicaKey:
    return ReplicaKey(type=type_, index=index)


def _request_number(written: str) -> int:
    """Return the number of a checkpoint request, or 0."""
    if not (written.isascii() and written.isdigit()) or len(written) > len(str(_LARGEST_REQUEST)):
        return 0
    number = int(written)
    return number if number <= _LARGEST_REQUEST else 0


def _unschedulable(status: Mapping[str, Any]) -> str:
    for condition in map(mapping, sequence(status.get("conditions"))):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return text(condition.get("message"))[:_LONGEST_MESSAGE] or "unschedulable"
    return ""
