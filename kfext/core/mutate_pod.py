"""The pod webhook's decision: gate the pods of a gang until all of them have a node."""

from collections.abc import Mapping
from typing import Any

from kfext import names
from kfext.core.mutate_job import DEFAULT_SCHEDULERS
from kfext.core.mutation import Mutation
from kfext.core.patch import Operation, pointer
from kfext.core.validate import OFF
from kfext.model.job import KINDS
from kfext.model.tolerant import mapping, sequence, strings, text
from kfext.model.verdict import Verdict

_GROUP_VERSION = f"{names.TRAINING_GROUP}/{names.TRAINING_VERSION}"


def mutate_pod(raw: object, *, controller_alive: bool) -> Mutation:
    """Return what admission does to a new pod; total, whatever the input.

    A pod is gated only while a controller is there to take the gate away again.
    """
    body = mapping(raw)
    metadata, spec = mapping(body.get("metadata")), body.get("spec")
    if not isinstance(spec, Mapping) or not controller_alive:
        return Mutation()
    if not _of_training_job(metadata) or not _ours(metadata, spec):
        return Mutation()
    gates, gate = spec.get("schedulingGates"), {"name": names.GATE}
    op: Operation
    if gates is None:
        op = {"op": "add", "path": pointer("spec", "schedulingGates"), "value": [gate]}
    elif isinstance(gates, list) and gate not in gates:
        op = {"op": "add", "path": pointer("spec", "schedulingGates", "-"), "value": gate}
    else:
        return Mutation()
    return Mutation(
        ops=(op,),
        verdicts=(Verdict(names.REASON_GATED, "waits for the other pods of its gang"),),
    )


def _of_training_job(metadata: Mapping[str, Any]) -> bool:
    return any(
        owner.get("controller") is True
        and owner.get("apiVersion") == _GROUP_VERSION
        and text(owner.get("kind")) in KINDS
        for owner in map(mapping, sequence(metadata.get("ownerReferences")))
    )


def _ours(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    annotations = strings(metadata.get("annotations"))
    return (
        not spec.get("nodeName")
        and text(spec.get("schedulerName")) in DEFAULT_SCHEDULERS
        and names.RELEASED not in annotations
        and annotations.get(names.COLOCATION) != OFF
    )
