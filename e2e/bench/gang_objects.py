"""The objects of the gang benchmark, as the training-operator would make them."""

from collections.abc import Sequence
from typing import Any

from kfext import names
from kfext.model.constraints import NAME_FIELD

Object = dict[str, Any]
_GPU = {"nvidia.com/gpu": "1"}
_CONTAINER: Object = {
    "name": "pytorch",
    "image": "none",
    "command": ["torchrun", "/workspace/train.py"],
    "resources": {"requests": {"cpu": "2", "memory": "8Gi", **_GPU}, "limits": _GPU},
    "ports": [{"name": "pytorchjob-port", "containerPort": 23456}],
}


def job_body(name: str, pods: int, *, held: bool) -> Object:
    """Return a suspended PyTorchJob; `held` by kfext's webhook, or by a person."""
    template = {"spec": {"containers": [_CONTAINER]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": {names.HELD: "true"} if held else {}},
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {
                type_: {"replicas": count, "restartPolicy": "OnFailure", "template": template}
                for type_, count in (("Master", 1), ("Worker", pods - 1))
            },
        },
    }


def pod_names(job: str, pods: int) -> list[str]:
    """Return the names of a job's pods in rank order."""
    return [f"{job}-master-0", *(f"{job}-worker-{index}" for index in range(pods - 1))]


def pod_body(job: Object, rank: int, *, affinity: Object) -> Object:
    """Return a gated pod of the job; rank 0 is the master."""
    name = job["metadata"]["name"]
    kind, index = ("worker", rank - 1) if rank else ("master", 0)
    environment = {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": f"{name}-master-0",
        "MASTER_PORT": "23456",
        "PET_MASTER_ADDR": f"{name}-master-0",
        "PET_MASTER_PORT": "23456",
        "PET_NODE_RANK": str(rank),
        "RANK": str(rank),
    }
    container = {
        **_CONTAINER,
        "env": [{"name": key, "value": value} for key, value in environment.items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{kind}-{index}",
            "labels": {
                names.JOB_NAME: name,
                names.OPERATOR_NAME: "pytorchjob-controller",
                names.REPLICA_TYPE: kind,
                names.REPLICA_INDEX: str(index),
            },
            "annotations": {names.PLAN_GENERATION: "1", names.ISTIO_INJECT: "false"},
            "ownerReferences": [
                {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "PyTorchJob",
                    "name": name,
                    "uid": job["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "schedulingGates": [{"name": names.GATE}],
            "affinity": affinity,
            "restartPolicy": "OnFailure",
            "containers": [container],
        },
    }


def affinity_of(nodes: Sequence[str]) -> Object:
    """Return the preference for the planned nodes that kfext writes into templates."""
    terms = [
        {
            "weight": 100,
            "preference": {
                "matchFields": [{"key": NAME_FIELD, "operator": "In", "values": [node]}]
            },
        }
        for node in nodes
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
