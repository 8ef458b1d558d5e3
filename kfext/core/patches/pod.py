"""The one patch of a pod: pin it to its node and remove our gate, together.

The pin is a required node affinity by name, with which kube-scheduler considers that node only.
While a pod is gated, the API allows required affinity only to be tightened: a requirement may be
added to a term that has one, or set where there was none (KEP-3838).
"""

from kfext.core.patches.gpu import on_pod
from kfext.core.patches.json_patch import Operation
from kfext.model.constraints import NAME_FIELD
from kfext.model.gpu_share import GpuShare
from kfext.model.pod import Pod
from kfext.model.tolerant import mapping, sequence
from kfext.names import GATE

_NODE_AFFINITY = "/spec/affinity/nodeAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pin(pod: Pod, node: str, *, share: GpuShare | None = None) -> list[Operation]:
    """Return the operations that pin a gated pod to `node` and ungate it.

    `share`: the terms on which it has a part of a GPU there.
    """
    terms = [on_pod(share)] if share else []
    return [_same(pod), *terms, *_tighten(pod, node), *_without_gate(pod)]


def ungate(pod: Pod) -> list[Operation]:
    """Return the operations that ungate a pod without a pin: kube-scheduler chooses its node."""
    return [_same(pod), *_without_gate(pod)]


def _same(pod: Pod) -> Operation:
    """Test the uid: a pod of the same name may be another one by now."""
    return {"op": "test", "path": "/metadata/uid", "value": pod.uid}


def _without_gate(pod: Pod) -> list[Operation]:
    path = f"/spec/schedulingGates/{pod.gates.index(GATE)}"
    return [
        {"op": "test", "path": f"{path}/name", "value": GATE},
        {"op": "remove", "path": path},
    ]


def _tighten(pod: Pod, node: str) -> list[Operation]:
    here = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    affinity = mapping(pod.affinity)
    node_affinity = mapping(affinity.get("nodeAffinity"))
    required = mapping(node_affinity.get(_REQUIRED))
    terms = sequence(required.get("nodeSelectorTerms"))
    if not terms:
        wanted = {"nodeSelectorTerms": [{"matchFields": [here]}]}
        if not affinity:
            value = {"nodeAffinity": {_REQUIRED: wanted}}
            return [{"op": "add", "path": "/spec/affinity", "value": value}]
        if not node_affinity:
            return [{"op": "add", "path": _NODE_AFFINITY, "value": {_REQUIRED: wanted}}]
        return [{"op": "add", "path": f"{_NODE_AFFINITY}/{_REQUIRED}", "value": wanted}]
    operations: list[Operation] = []
    for number, term in enumerate(map(mapping, terms)):
        path = f"{_NODE_AFFINITY}/{_REQUIRED}/nodeSelectorTerms/{number}/matchFields"
        if sequence(term.get("matchFields")):
            operations.append({"op": "add", "path": f"{path}/-", "value": here})
        elif sequence(term.get("matchExpressions")):  # an empty term must stay empty
            operations.append({"op": "add", "path": path, "value": [here]})
    return operations
