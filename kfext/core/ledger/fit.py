"""The nodes that are eligible for a pod, regardless of capacity: selectors, affinity, taints.

The rules follow kube-scheduler's filters NodeUnschedulable, NodeAffinity, TaintToleration and, for
bound claims, VolumeBinding. kube-scheduler never sees a pod that names its node; for such a pod the
kubelet's checks count. Each node is judged once for each kind of pod (`Eligibility`).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from kfext.core.words import nodes
from kfext.model.constraints import NAME_FIELD, Constraints, Requirement, Term, Toleration
from kfext.model.node import Node, Taint
from kfext.model.pod import Pod
from kfext.names import DEFAULT_SCHEDULER, DRAIN

NO_SCHEDULE = "NoSchedule"
_OF_AUTOSCALERS = frozenset(
    {
        *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
        *("karpenter.sh/disrupted", "karpenter.sh/unregistered"),
    }
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")  # Python would read 1_0 as a number too
_LARGEST = 2**63 - 1
_LONGEST_KEY, _LONGEST_VALUE = 317, 63
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class Misfit(StrEnum):
    """An obstacle other than a taint or a label that the nodeSelector requires."""

    NODE_NAME = "nodeName"
    CORDON = "cordon"
    DRAIN = "drain"
    AFFINITY = "node affinity"
    VOLUME = "node affinity of a volume"


Label = tuple[str, str]
"""The key and the value that the nodeSelector of a pod requires."""
Obstacle = Taint | Label | Misfit
"""The cause that excludes a node: a taint, a missing label, or another misfit."""


def in_words(obstacle: Obstacle, *, number: int, pods: str) -> str:
    """Return a clause on the nodes that an obstacle excludes; `pods`: for example "the pods"."""
    subject = nodes(number)
    have, do, are = ("has", "does", "is") if number == 1 else ("have", "do", "are")
    match obstacle:
        case Taint():
            return f"{subject} {have} taint {obstacle} that {pods} do not tolerate"
        case (key, value):
            # A template may have a longer key or value, which no label of a node has.
            label = f"{key[:_LONGEST_KEY]}={value[:_LONGEST_VALUE]}"
            return f"{subject} {do} not have label {label}, which nodeSelector requires"
        case Misfit.CORDON:
            return f"{subject} {are} cordoned"
        case Misfit.DRAIN:
            return f"{subject} {are} drained"
        case Misfit.NODE_NAME:
            return f"{subject} {are} not the node that {pods} name"
        case Misfit.AFFINITY | Misfit.VOLUME:
            return f"{subject} {do} not match the required {obstacle}"
        case _:
            assert_never(obstacle)


def why_not(constraints: Constraints, node: Node) -> Obstacle | None:
    """Return the obstacle that excludes a node for a pod, or None."""
    named = constraints.node_name
    if named and node.name != named:
        return Misfit.NODE_NAME
    if node.unschedulable and not named and not tolerated(_UNSCHEDULABLE, constraints.tolerations):
        return Misfit.CORDON
    if misfit := _label_misfit(constraints, node):
        return misfit
    barring_effects = {"NoExecute"} if named else {NO_SCHEDULE, "NoExecute"}
    for taint in node.taints:
        if taint.key == DRAIN and not named:
            return Misfit.DRAIN
        if taint.effect == NO_SCHEDULE and taint.key in constraints.devices:
            continue
        # An admission plugin is expected to add tolerations for pool taints. The exception is the
        # taint of a device, with a resource as its key: only pods that request the device get one.
        pool_taint = constraints.expects_tolerations and dedicates_nodes(taint.key)
        if pool_taint and taint.key not in node.allocatable:
            continue
        if taint.effect in barring_effects and not tolerated(taint, constraints.tolerations):
            return taint
    return None


def _label_misfit(constraints: Constraints, node: Node) -> Obstacle | None:
    for label in constraints.node_selector:
        if node.labels.get(label[0]) != label[1]:
            return label
    if constraints.terms is not None and not any(_matches(t, node) for t in constraints.terms):
        return Misfit.AFFINITY
    if not all(any(_matches(t, node) for t in terms) for terms in constraints.volumes.terms):
        return Misfit.VOLUME
    return None


def dedicates_nodes(key: str) -> bool:
    """Return whether taints with a key are set by administrators, to dedicate nodes to some pods.

    Kubernetes and autoscalers set the other taints, on nodes that pods must not use for now.
    """
    return not key.partition("/")[0].endswith("kubernetes.io") and key not in _OF_AUTOSCALERS


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether one of a pod's tolerations covers a taint."""
    return any(
        toleration.effect in {"", taint.effect}
        and toleration.key in {"", taint.key}
        and (
            toleration.operator == "Exists"
            or (bool(toleration.key) and toleration.value == taint.value)
        )
        for toleration in tolerations
    )


def _matches(term: Term, node: Node) -> bool:
    """Return whether all requirements hold; an empty term matches nothing."""
    return (
        not term.empty
        and all(_holds(label, node.labels.get(label.key)) for label in term.expressions)
        and all(
            field.key == NAME_FIELD
            and field.operator in {"In", "NotIn"}
            and _holds(field, node.name)
            for field in term.fields
        )
    )


def _holds(requirement: Requirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    """Compare a label with the required value as 64-bit integers; other values never match."""
    if value is None or len(requirement.values) != 1:
        return False
    have, want = _integer(value), _integer(requirement.values[0])
    if have is None or want is None:
        return False
    return have > want if requirement.operator == "Gt" else have < want


def _integer(text: str) -> int | None:
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -_LARGEST - 1 <= number <= _LARGEST else None


Mask = NDArray[np.bool_]

_MAX_KINDS = 256
"""The largest number of cached constraints; each costs nine bytes per node."""


@dataclass(slots=True)
class Judged:
    """The eligible rows for one kind of pod, and the obstacles of the other rows.

    `counts`: the number of nodes that each obstacle excludes; a node counts only for its first.
    """

    mask: Mask
    obstacles: list[Obstacle | None]
    counts: Counter[Obstacle]

    def set(self, row: int, *, exists: bool, obstacle: Obstacle | None) -> None:
        """Set the judgement of a row."""
        known = self.obstacles[row]
        if known is not None:
            self.counts[known] -= 1
            if not self.counts[known]:
                del self.counts[known]  # else taints with a time in their value would accumulate
        if obstacle is not None:
            self.counts[obstacle] += 1
        self.obstacles[row] = obstacle
        self.mask[row] = exists and obstacle is None


class Eligibility:
    """The rows of a ledger that are eligible for each kind of pod, regardless of other pods.

    Pods with equal constraints are of one kind. There are few kinds, so the result is cached.
    """

    def __init__(self) -> None:
        self._judged: dict[Constraints, Judged] = {}

    def judge(
        self, constraints: Constraints, nodes: Sequence[Node | None], *, width: int
    ) -> Judged:
        """Return the judgement of `width` rows; rows beyond the nodes are not eligible."""
        key = constraints
        if constraints.host_ports or constraints.gang_terms:
            key = replace(constraints, host_ports=(), apart=(), together=())
        judged = self._judged.get(key)
        if judged is None:
            if len(self._judged) >= _MAX_KINDS:  # evict the oldest
                del self._judged[next(iter(self._judged))]
            obstacles = [None if node is None else why_not(key, node) for node in nodes]
            mask = np.zeros(width, dtype=np.bool_)
            mask[: len(nodes)] = [
                node is not None and obstacle is None
                for node, obstacle in zip(nodes, obstacles, strict=True)
            ]
            counts = Counter(obstacle for obstacle in obstacles if obstacle is not None)
            judged = Judged(mask, [*obstacles, *[None] * (width - len(obstacles))], counts)
            self._judged[key] = judged
        return judged

    def set(self, row: int, node: Node | None) -> None:
        """Judge a row again; `node` is its node, or None after the node's removal."""
        for constraints, judged in self._judged.items():
            obstacle = None if node is None else why_not(constraints, node)
            judged.set(row, exists=node is not None, obstacle=obstacle)

    def widen(self, width: int) -> None:
        """Add rows, up to `width`."""
        for judged in self._judged.values():
            more = width - len(judged.obstacles)
            judged.mask = np.concatenate([judged.mask, np.zeros(more, dtype=np.bool_)])
            judged.obstacles += [None] * more


UNBOUND_SECONDS = 60.0
"""A pinned pod that is unbound at this age claims nothing: no scheduler seems to handle it."""


def could_run(pod: Pod, node: Node | None) -> bool:
    """Return whether kube-scheduler could bind a pinned pod to its node, if the node were empty.

    Any client may pin a pod by name. The pod claims capacity only while it may still be bound.
    """
    if node is None or pod.gates or pod.deleting or pod.scheduler != DEFAULT_SCHEDULER:
        return False
    if any(node.allocatable.get(name, 0) < number for name, number in pod.requests.items()):
        return False
    return pod.constraints is None or why_not(pod.constraints, node) is None


def may_be_bound(pod: Pod, node: Node | None) -> bool:
    """Return whether kube-scheduler may soon bind a pinned pod.

    The caller checks its age (UNBOUND_SECONDS). An unschedulable pod may stay so for any time.
    """
    return not pod.unschedulable and could_run(pod, node)
