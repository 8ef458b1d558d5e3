"""The patches of pods: pin and ungate a gated pod, resize a running pod, request a checkpoint.

The pin is a required node affinity by name: kube-scheduler then considers that node only. While a
pod is gated, the API allows required affinity only to be tightened: a requirement may be added to
a term with requirements, or set if there is no term (KEP-3838).
"""

from typing import Any

from kfext.core.patches.json_patch import Operation, pointer
from kfext.model.constraints import NAME_FIELD
from kfext.model.cpu_size import CpuSize
from kfext.model.gpu import GpuShare, encode_terms
from kfext.model.pod import Pod
from kfext.model.quantity import CPU
from kfext.model.tolerant import mapping, sequence
from kfext.names import CHECKPOINT_REQUEST, GATE, GPU_TERMS, REQUIRED

Body = dict[str, Any]
"""A strategic merge patch."""

_NODE_AFFINITY = "/spec/affinity/nodeAffinity"
_ANNOTATIONS = pointer("metadata", "annotations")


def pin(pod: Pod, node: str, *, share: GpuShare | None = None) -> list[Operation]:
    """Return the operations that pin a gated pod to `node` and ungate it.

    `share`: its GPU share; None means that it has none.
    """
    terms: list[Operation] = []
    if share is not None:  # its pod has annotations
        path = _ANNOTATIONS + pointer(GPU_TERMS)
        terms = [{"op": "add", "path": path, "value": encode_terms(share)}]
    return [_uid_test(pod), *terms, *pinned(pod.affinity, node), *_without_gate(pod)]


def ungate(pod: Pod) -> list[Operation]:
    """Return the operations that ungate a pod without a pin: kube-scheduler chooses its node."""
    return [_uid_test(pod), *_without_gate(pod)]


def resize(pod: Pod, size: CpuSize, *, container: str) -> Body:
    """Return the strategic merge patch that resizes a container of a running pod in place.

    The patch has the resource version, so that any other write is a conflict: the size is for one
    state of the pod. A pod that requests no CPU gets a request of 0; else the API server would set
    its request to the limit.
    """
    resources: Body = {}
    request = size.request
    if size.limit is not None:
        resources["limits"] = {CPU: _millicores(size.limit)}
        if request is None and pod.trainer is not None and pod.trainer.request == 0:
            request = 0
    if request is not None:
        resources["requests"] = {CPU: _millicores(request)}
    return {
        "metadata": {"resourceVersion": pod.resource_version},
        "spec": {"containers": [{"name": container, "resources": resources}]},
    }


def request_patch(pod: Pod, number: int) -> list[Operation]:
    """Return the operations that request checkpoint `number` of a pod's job, counted from 1.

    If the pod has no annotations yet, its resource version is tested too: annotations that another
    client has added since must not be lost.
    """
    request = str(number)
    uid_test = _uid_test(pod)
    if pod.annotated:
        path = _ANNOTATIONS + pointer(CHECKPOINT_REQUEST)
        return [uid_test, {"op": "add", "path": path, "value": request}]
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": pod.resource_version}
    annotations = {"op": "add", "path": _ANNOTATIONS, "value": {CHECKPOINT_REQUEST: request}}
    return [uid_test, version, annotations]


def _uid_test(pod: Pod) -> Operation:
    """Return the operation that tests the uid: a new pod may have the same name."""
    return {"op": "test", "path": "/metadata/uid", "value": pod.uid}


def _without_gate(pod: Pod) -> list[Operation]:
    path = f"/spec/schedulingGates/{pod.gate}"
    return [{"op": "test", "path": f"{path}/name", "value": GATE}, {"op": "remove", "path": path}]


def pinned(affinity: object, node: str) -> list[Operation]:
    """Return the operations that pin a pod to `node`; `affinity`: the pod's present affinity."""
    name_term = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    affinity = mapping(affinity)
    node_affinity = mapping(affinity.get("nodeAffinity"))
    required = mapping(node_affinity.get(REQUIRED))
    terms = sequence(required.get("nodeSelectorTerms"))
    if not terms:
        wanted = {"nodeSelectorTerms": [{"matchFields": [name_term]}]}
        if not affinity:
            value = {"nodeAffinity": {REQUIRED: wanted}}
            return [{"op": "add", "path": "/spec/affinity", "value": value}]
        if not node_affinity:
            return [{"op": "add", "path": _NODE_AFFINITY, "value": {REQUIRED: wanted}}]
        return [{"op": "add", "path": f"{_NODE_AFFINITY}/{REQUIRED}", "value": wanted}]
    operations: list[Operation] = []
    for number, term in enumerate(map(mapping, terms)):
        path = f"{_NODE_AFFINITY}/{REQUIRED}/nodeSelectorTerms/{number}/matchFields"
        if sequence(term.get("matchFields")):
            operations.append({"op": "add", "path": f"{path}/-", "value": name_term})
        elif sequence(term.get("matchExpressions")):  # an empty term must stay empty
            operations.append({"op": "add", "path": path, "value": [name_term]})
    return operations


def _millicores(amount: int) -> str:
    return f"{amount}m"
