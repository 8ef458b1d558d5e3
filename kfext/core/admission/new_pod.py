"""The pod webhook's decision: gate a gang's pods until all have a node, and set them up.

The network is set up even if no controller runs, because the other pods of the job rely on it.
"""

from collections.abc import Mapping
from typing import Any

from kfext import names
from kfext.core.admission.control_file import CHECKPOINT_SETTINGS, control_file
from kfext.core.admission.gpu import with_gpu_share
from kfext.core.admission.posting import posting
from kfext.core.admission.review import ReviewResult
from kfext.core.patches.host_network import host_network
from kfext.core.patches.json_patch import Operation, appended, pointer
from kfext.core.patches.pod import pinned
from kfext.core.settings.table import settings_of_pod
from kfext.core.settings.values import Colocation
from kfext.model.constraints import parse_constraints
from kfext.model.kinds.job_kind import JobKind
from kfext.model.plan import place_in
from kfext.model.pod import controller_of, replica_of
from kfext.model.pod_bounds import pod_excess
from kfext.model.podspec import container_named, with_container
from kfext.model.tolerant import mapping, strings, text
from kfext.model.unmodelled import unmodelled
from kfext.model.verdict import Verdict

_UNSHARED = "a pod that shares a GPU does not run otherwise"
_UNDISRUPTED = {names.DO_NOT_DISRUPT: "true", names.SAFE_TO_EVICT: "false"}
_UNBUFFERED = {"name": "PYTHONUNBUFFERED", "value": "1"}


def mutate_pod(
    raw: object, *, controller_alive: bool, namespace: str = "", authority: str = ""
) -> ReviewResult:
    """Return the result of the admission of a new pod in a namespace. Never raises.

    `authority`: the CA certificate for posts of progress, in PEM; if empty, no pod posts.

    A pod is gated only while a controller can ungate it. A pod of a gang that is born pinned is
    pinned instead. A pod that shares a GPU is always gated, because it must not run unplaced. A pod
    uses its node's network if its template has the base of the job's ports.
    """
    body = mapping(raw)
    metadata, spec = mapping(body.get("metadata")), body.get("spec")
    annotations = mapping(metadata.get("annotations"))
    kind, owner = controller_of(metadata)
    if kind is None or not kind.takes_part(metadata):
        return ReviewResult()
    if not isinstance(spec, Mapping) or not _for_default_scheduler(spec):
        return ReviewResult()
    ops: list[Operation] = []
    verdicts = []
    shares = _shares_gpus(metadata)
    if (excess := pod_excess(spec)) and shares:
        return ReviewResult(refusal=f"{_UNSHARED}: it has {excess}")
    if excess:
        verdicts.append(Verdict(names.REASON_HANDS_OFF, f"the pod has {excess}"))
    elif shares or (controller_alive and not _is_released(metadata, spec)):
        start = (None if shares else _pinned(kind, metadata, spec, job_uid=owner)) or _gated(spec)
        ops += [*start.ops, *(_undisrupted(metadata) if start.ops else ())]
        verdicts += start.verdicts
    if not excess:
        spec, env_ops = unbuffered(kind, spec)
        ops += env_ops
        if not annotations.keys().isdisjoint(CHECKPOINT_SETTINGS):
            spec, file_ops = control_file(kind, metadata, spec)
            ops += file_ops
        if authority and names.METRICS in annotations:
            spec, more = posting(kind, metadata, spec, namespace=namespace, authority=authority)
            ops += more
        if shares:
            shared = with_gpu_share(kind, metadata, spec)
            if shared.refusal:
                return ReviewResult(refusal=f"{_UNSHARED}: {shared.refusal}")
            spec = shared.spec
            ops += shared.operations
    if names.PORT_BASE in annotations and (network_ops := host_network(kind, metadata, spec)):
        ops += network_ops
        verdicts.append(Verdict(names.REASON_HOST_NETWORK, "uses the network of its node"))
    return ReviewResult(ops=tuple(ops), verdicts=tuple(verdicts))


def _pinned(
    kind: JobKind, metadata: Mapping[str, Any], spec: Mapping[str, Any], *, job_uid: str
) -> ReviewResult | None:
    """Return the result that pins a pod of a gang that is born pinned, or None for any other pod.

    A pinned pod, as in a second review, does not change.
    """
    written = text(mapping(metadata.get("annotations")).get(names.PLACES))
    replica = replica_of(strings(metadata.get("labels")), kind)
    if not (written and replica):
        return None
    node = place_in(written, replica, job_uid=job_uid)
    if node is None or parse_constraints(spec).pinned_to == node:
        return ReviewResult() if node else None
    verdict = Verdict(names.REASON_PLANNED, f"is pinned to node {node}")
    ops = tuple(pinned(spec.get("affinity"), node))  # none if no term can be tightened
    return ReviewResult(ops=ops, verdicts=(verdict,)) if ops else None


def _gated(spec: Mapping[str, Any]) -> ReviewResult:
    """Return the result that adds kfext's gate to a pod without it."""
    gates, gate = spec.get("schedulingGates"), {"name": names.GATE}
    if gates is None or (isinstance(gates, list) and gate not in gates):
        verdict = Verdict(names.REASON_GATED, "waits for the other pods of its gang")
        added = appended(gates, gate, "spec", "schedulingGates")
        return ReviewResult(ops=(added,), verdicts=(verdict,))
    return ReviewResult()


def _undisrupted(metadata: Mapping[str, Any]) -> list[Operation]:
    """Return the operations that protect the node of a pod, and so its gang, from an autoscaler.

    An annotation that the user wrote is not changed.
    """
    annotations = metadata.get("annotations")
    if annotations is None:
        return [{"op": "add", "path": pointer("metadata", "annotations"), "value": _UNDISRUPTED}]
    return [
        {"op": "add", "path": pointer("metadata", "annotations", key), "value": value}
        for key, value in _UNDISRUPTED.items()
        if isinstance(annotations, Mapping) and key not in annotations
    ]


def _for_default_scheduler(spec: Mapping[str, Any]) -> bool:
    scheduler = text(spec.get("schedulerName")) or names.DEFAULT_SCHEDULER
    return not spec.get("nodeName") and scheduler == names.DEFAULT_SCHEDULER


def _shares_gpus(metadata: Mapping[str, Any]) -> bool:
    """Return whether the job of a pod shares GPUs, so that the pod must not run otherwise."""
    annotations = strings(metadata.get("annotations"))
    stated = names.GPU_SHARE in annotations or names.GPU_SLOTS in annotations
    return stated and names.RELEASED not in annotations


def _is_released(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Return whether kfext does not place a pod; the pod still uses the network of its peers."""
    annotations = strings(metadata.get("annotations"))
    if names.RELEASED in annotations or annotations.get(names.COLOCATION) == Colocation.OFF:
        return True
    if names.PLAN_GENERATION in annotations or not unmodelled(spec):
        return False  # the controller releases a started job as a whole, and reports why
    return not settings_of_pod(annotations).why_never_released


def unbuffered(kind: JobKind, spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Operation]]:
    """Return the pod spec with unbuffered output of Python, and the operations that change it.

    Python writes to a pipe in blocks of 8 KiB, so the log would lag many steps behind the training.
    The operator itself sets PYTHONUNBUFFERED for some kinds.
    """
    trainer = container_named(spec, kind.container) if kind.buffers else None
    if trainer is None:
        return spec, []
    index, container = trainer
    env = container.get("env")
    if not isinstance(env, list | None):
        return spec, []
    if any(mapping(variable).get("name") == _UNBUFFERED["name"] for variable in env or ()):
        return spec, []
    operation = appended(env, _UNBUFFERED, "spec", "containers", str(index), "env")
    return with_container(spec, index, env=[*(env or []), _UNBUFFERED]), [operation]
