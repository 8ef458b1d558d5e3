"""Hand-made objects, as the API server would show them, for tests of the soak's checker."""

import json
from typing import Any

from e2e.soak import facts, reading

Raw = dict[str, Any]
NAMESPACE = "team"


def node(name: str = "n1", *, gpus: int = 8, pods: int = 10, **spec: Any) -> Raw:
    allocatable = {"cpu": "64", "memory": "1Ti", "nvidia.com/gpu": str(gpus), "pods": str(pods)}
    metadata = {"name": name, "uid": name, "labels": {"zone": "a"}}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}}


def spec(gpus: int = 1, **fields: Any) -> Raw:
    resources = {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "1"}}
    return {"containers": [{"name": "pytorch", "resources": resources}], **fields}


def pin(*nodes: str) -> Raw:
    field = {"key": "metadata.name", "operator": "In", "values": list(nodes)}
    terms = [{"matchFields": [field]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def pod(
    index: int = 0,
    *,
    job: str = "job",
    node: str = "",
    pinned: str = "",
    gates: tuple[str, ...] = (),
    gpus: int = 1,
    phase: str = "Pending",
    ending: bool = False,
    namespace: str = NAMESPACE,
) -> Raw:
    """Return a worker of a job; its uid is its name. A bound worker is by default pinned too."""
    pinned = pinned or node
    labels = {
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": str(index),
    }
    name = f"{job}-worker-{index}"
    owner = {"kind": "PyTorchJob", "uid": job, "name": job, "controller": True}
    metadata: Raw = {
        "name": name,
        "uid": name,
        "namespace": namespace,
        "labels": labels,
        "ownerReferences": [owner] if job else [],
    }
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod_spec = spec(gpus, schedulingGates=[{"name": gate} for gate in gates])
    pod_spec |= {"nodeName": node} if node else {}
    pod_spec |= pin(pinned) if pinned else {}
    return {"metadata": metadata, "spec": pod_spec, "status": {"phase": phase}}


def job(
    name: str = "job",
    *,
    size: int = 2,
    suspend: bool = False,
    held: bool = False,
    plan: list[str] | None = None,
    conditions: dict[str, str] | None = None,
    gpus: int = 1,
    policy: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    **annotations: str,
) -> Raw:
    """Return a PyTorchJob; its uid is its name. `plan`: the node of each worker."""
    marks = {f"kfext.dev/{key}": value for key, value in annotations.items()}
    marks |= {facts.HELD: "true"} if held else {}
    if plan is not None:
        places = [sorted(set(plan)).index(node) for node in plan]
        plan_ = {"uid": name, "nodes": sorted(set(plan)), "replicas": {"worker": places}}
        marks[facts.PLAN] = json.dumps({"generation": 1, **plan_})
    conditions_ = [
        {"type": key, "status": "True", "message": text} for key, text in (conditions or {}).items()
    ]
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "namespace": NAMESPACE,
            "annotations": marks,
            "labels": labels or {},
        },
        "spec": {
            "runPolicy": {"suspend": suspend, **(policy or {})},
            "pytorchReplicaSpecs": {"Worker": {"replicas": size, "template": {"spec": spec(gpus)}}},
        },
        "status": {"conditions": conditions_},
    }


def view(job: str = "job", phase: str = "Placed", *nodes: str, reason: str = "Placed") -> Raw:
    status = {"phase": phase, "reason": reason, "message": "so it is", "nodes": list(nodes)}
    metadata = {"name": f"pytorchjob-{job}", "namespace": NAMESPACE, "uid": f"view-{job}"}
    return {"metadata": metadata, "spec": {"job": {"uid": job}}, "status": status}


def namespace(name: str = NAMESPACE, *, managed: bool = True, refuses: str = "") -> Raw:
    labels = {"kfext.dev/managed": "true"} if managed else {}
    return {
        "metadata": {"name": name, "labels": labels | ({facts.REFUSES: refuses} if refuses else {})}
    }


def cluster(
    *,
    at: float = 0.0,
    nodes: tuple[Raw, ...] = (),
    pods: tuple[Raw, ...] = (),
    jobs: tuple[Raw, ...] = (),
    views: tuple[Raw, ...] = (),
    quotas: tuple[Raw, ...] = (),
    namespaces: tuple[Raw, ...] = (namespace(),),
) -> facts.Cluster:
    return reading.cluster_of(
        at=at,
        nodes=map(reading.node_of, nodes),
        pods=map(reading.pod_of, pods),
        jobs=[("PyTorchJob", job) for job in jobs],
        views=views,
        quotas=quotas,
        namespaces=namespaces,
    )
