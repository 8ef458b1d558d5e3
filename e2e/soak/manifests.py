"""A random training job, and what else the soak puts into the cluster."""

import random
from typing import Any

from e2e.harness.jobs import job, specs
from e2e.soak.sizes import BY_HAND, ELASTIC

Object = dict[str, Any]
FOREIGN_GATE = "soak.example.com/gate"
PRIORITIES = {"soak-low": -10, "soak-high": 10}
ZONE = "soak.example.com/zone"
ZONES = ("a", "b", "c")

_JOB_NAME = "training.kubeflow.org/job-name"
_SHAPES: tuple[tuple[int, dict[str, str]], ...] = (
    (10, {"nvidia.com/gpu": "1", "cpu": "1", "memory": "4Gi"}),
    (3, {"nvidia.com/gpu": "2", "cpu": "2", "memory": "8Gi"}),
    (3, {"cpu": "4", "memory": "8Gi"}),
    (1, {"cpu": "500m", "memory": "100Gi"}),
    (2, {}),  # what its namespace's LimitRange says, if there is one
)
_FEW = 2
_SIZES = {1: 4, 2: 4, 3: 2, 4: 6, 6: 3, 8: 6, 10: 1, 12: 2, 20: 1}
_PART = {"cpu": "2", "memory": "4Gi"}
_MORE_WORKERS = 3
"""An elastic job may get as many more than it asks for, at most."""


_ODDITIES: dict[str, Object] = {
    "gated": {"schedulingGates": [{"name": FOREIGN_GATE}]},
    "scheduler": {"schedulerName": "nobody"},
    "selector": {"nodeSelector": {ZONE: "nowhere"}},
}
PINNED = ("plain", "huge", *_ODDITIES)


def random_job(dice: random.Random, name: str) -> Object:
    """Return a job of any of the kinds, sizes, wishes and oddities that a cluster sees."""
    (size,) = dice.choices(list(_SIZES), weights=list(_SIZES.values()))
    (each,) = dice.choices([one for _, one in _SHAPES], weights=[much for much, _ in _SHAPES])
    annotations = {}
    if (dice.random() < 0.35 and size <= 8) or dice.random() < 0.02:
        annotations["kfext.dev/colocation"] = "required"
    made = _kind(dice, name, size=size, each=each, annotations=annotations)
    policy = made["spec"]["runPolicy"]
    if dice.random() < 0.15:
        policy["activeDeadlineSeconds"] = dice.randint(20, 300)
    if dice.random() < 0.1:
        policy["schedulingPolicy"] = {"priorityClass": dice.choice(list(PRIORITIES))}
    if dice.random() < 0.2:
        _each_pod(made, priorityClassName=dice.choice(list(PRIORITIES)))
    if dice.random() < 0.08:
        _each_pod(made, schedulingGates=[{"name": FOREIGN_GATE}])
    if dice.random() < 0.1:
        _each_pod(made, affinity=_zones(dice.sample(ZONES, 2)))
    elif dice.random() < 0.08:
        term = "podAffinity" if dice.random() < 0.5 else "podAntiAffinity"
        _each_pod(made, affinity=_refused(term, "" if size <= _FEW else name))
    elif dice.random() < 0.1:
        _each_pod(made, nodeSelector={ZONE: dice.choice(ZONES)})
    return made


def _kind(
    dice: random.Random, name: str, *, size: int, each: Object, annotations: Object
) -> Object:
    if dice.random() < 0.7:
        replicas = {"Master": 1, "Worker": size - 1} if size > 1 else {"Master": 1}
        made = job(name, replicas, each=each, annotations=annotations)
        _perhaps_elastic(dice, made, size, share=0.15)
        return made
    parts = {"PS": dice.randint(1, 2), "Chief": 1} if size > 3 else {}
    replicas = {**parts, "Worker": max(1, size - sum(parts.values()))}
    made = job(name, replicas, kind="TFJob", each=each, annotations=annotations)
    made["spec"]["enableDynamicWorker"] = dice.random() < 0.7
    _perhaps_elastic(dice, made, size, share=0.8)
    if "PS" in parts:
        container = specs(made)["PS"]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": dict(_PART)}
    return made


def _perhaps_elastic(dice: random.Random, made: Object, size: int, *, share: float) -> None:
    """Have some jobs of several pods opt in to be scaled; PyTorchJobs start by torchrun then.

    All may start with fewer, so what they ask for is noted; admission has a Master work with them.
    """
    if size < _FEW or dice.random() >= share:
        return
    least, most = dice.randint(1, size), size + dice.randint(0, _MORE_WORKERS)
    made["metadata"]["annotations"][ELASTIC] = f"{least}-{most}"
    if made["kind"] == "PyTorchJob":
        for replica in specs(made).values():
            (container,) = replica["template"]["spec"]["containers"]
            container["command"] = ["torchrun", "train.py"]
    workers = size if made["kind"] == "PyTorchJob" else specs(made)["Worker"]["replicas"]
    made["metadata"]["annotations"][BY_HAND] = str(workers)


def _each_pod(made: Object, **fields: Any) -> None:
    for replica in specs(made).values():
        replica["template"]["spec"].update(fields)


def _zones(zones: list[str]) -> Object:
    """Return two terms of which a node must fulfil one; a pin must go into both."""
    terms = [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in zones
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def _refused(kind: str, job: str) -> Object:
    """Return terms by which kube-scheduler refuses pods.

    With podAffinity all of them, for nothing has that label; with podAntiAffinity all but one on
    each node: of the job, or of any if none is named. Those keep the pods of all jobs off their
    nodes, so large jobs must not have them.
    """
    if kind == "podAffinity":
        there: Object = {"key": "soak.example.com/nobody", "operator": "Exists"}
    elif job:
        there = {"key": _JOB_NAME, "operator": "In", "values": [job]}
    else:
        there = {"key": _JOB_NAME, "operator": "Exists"}
    selector = {"matchExpressions": [there]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def thief(name: str, node: str, gpus: int) -> Object:
    """Return a pod of nobody's job, for one node or for any; kube-scheduler gives it its place."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec: Object = {"containers": [{"name": "main", "image": "none", "resources": resources}]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def pinned(name: str, node: str, how: str) -> Object:
    """Return a pod that somebody pins as kfext does; kube-scheduler can bind it only if `plain`."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    cpu = "1000" if how == "huge" else "1"
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec: Object = {"containers": [container], "affinity": affinity, **_ODDITIES.get(how, {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def limit_range(cpu: str, memory: str) -> Object:
    """Return what containers request, and are limited to, that do not say so themselves."""
    amounts = {"cpu": cpu, "memory": memory}
    limit = {"type": "Container", "default": amounts, "defaultRequest": amounts}
    metadata = {"name": "soak"}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata,
        "spec": {"limits": [limit]},
    }


def priority_class(name: str) -> Object:
    """Return a PriorityClass; its pods go before others and take no room from them."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": PRIORITIES[name],
        "preemptionPolicy": "Never",
    }
