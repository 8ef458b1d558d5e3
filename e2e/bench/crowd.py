"""Creates thousands of objects in a minute or two: nodes, jobs, and pods like the operator's.

Nodes are only objects: no kwok, no Lease. Admission taints each new node until the node lifecycle
controller has checked it; the controller-manager does not run on these testbeds, so `create_nodes`
removes the taint.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Any

from e2e.testbed.fakenodes import CAPACITY, node
from kfext import names
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.patches.json_patch import patched
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.constraints import NAME_FIELD
from kfext.model.kinds.registered import KINDS
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey

Object = dict[str, Any]
_GPU = {"nvidia.com/gpu": "1"}
_CONTAINER: Object = {
    "name": "pytorch",
    "image": "none",
    "command": ["torchrun", "/workspace/train.py"],
    "resources": {"requests": {"cpu": "2", "memory": "8Gi", **_GPU}, "limits": _GPU},
    "ports": [{"name": "pytorchjob-port", "containerPort": 23456}],
}
IN_FLIGHT = 32
_READY_SINCE = "2026-01-01T00:00:00Z"


def job_body(name: str, pods: int, *, held: bool) -> Object:
    """Return a suspended PyTorchJob. `held`: whether kfext's webhook suspended it, not its user."""
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
    return [f"{job}-master-0", *(f"{job}-worker-{index}" for index in range(pods - 1))]


def pod_body(job: Object, rank: int, *, affinity: Object) -> Object:
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


async def in_flight(requests: Iterable[Awaitable[Any]], count: int = IN_FLIGHT) -> None:
    """Await requests in order, `count` at once; the iterable is read only as needed."""
    waiting = iter(requests)

    async def work() -> None:
        for request in waiting:
            await request

    async with asyncio.TaskGroup() as workers:
        for _ in range(count):
            workers.create_task(work())


def node_name(index: int) -> str:
    return f"fake-{index:05}"


async def create_namespace(client: Client, name: str) -> None:
    labels = {names.MANAGED: "true"}
    await client.create(paths.namespaces(), {"metadata": {"name": name, "labels": labels}})
    accounts = paths.Namespaced("serviceaccounts")(name)
    await client.create(accounts, {"metadata": {"name": "default"}})


async def create_nodes(client: Client, count: int, *, gpus: int) -> None:
    capacity = {**CAPACITY, "nvidia.com/gpu": str(gpus)}

    async def create(name: str) -> None:
        body = node(name, capacity=capacity, labels={}, taints=[])
        body["status"]["conditions"] = [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "lastHeartbeatTime": _READY_SINCE,
                "lastTransitionTime": _READY_SINCE,
            }
        ]
        await client.create(paths.nodes(), body)
        await client.merge_patch(paths.nodes(name), {"spec": {"taints": None}})

    await in_flight(create(node_name(index)) for index in range(count))


def bound_pod(namespace: str, name: str, *, node: str, requests: dict[str, str]) -> Object:
    """Return a bound pod without an owner; no scheduler has to act on it."""
    gpus = {key: value for key, value in requests.items() if "/" in key}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": "other", "pod-template-hash": "7c9f8d6b5"},
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "resources": {"requests": requests, "limits": gpus},
                }
            ],
        },
    }


async def create_pods(client: Client, pods: Iterable[Object]) -> None:
    await in_flight(client.create(paths.pods(pod["metadata"]["namespace"]), pod) for pod in pods)


async def create_jobs(client: Client, namespace: str, bodies: Iterable[Object]) -> list[Object]:
    """Create jobs; return them as stored, in no particular order."""
    stored: list[Object] = []

    async def create(body: Object) -> None:
        stored.append(await client.create(paths.jobs(KINDS["PyTorchJob"], namespace), body))

    await in_flight(create(body) for body in bodies)
    return stored


def gated_pods(job: Object, *, affinity: Object) -> Iterator[Object]:
    """Yield the pods of a job as created by the operator and gated by the pod webhook."""
    for rank in range(size_of(job)):
        pod = pod_body(job, rank, affinity=affinity)
        pod["metadata"]["namespace"] = job["metadata"]["namespace"]
        yield pod


def admitted_pods(job: Object, specs: Object) -> Iterator[Object]:
    """Yield the pods of a job, gated or born pinned; `specs`: its replica specs as patched."""
    for pod in gated_pods(job, affinity={}):
        type_ = pod["metadata"]["labels"][names.REPLICA_TYPE].capitalize()
        template = specs[type_]["template"]
        pod["metadata"]["annotations"] = template["metadata"]["annotations"]
        pod["spec"]["affinity"] = template["spec"]["affinity"]
        del pod["spec"]["schedulingGates"]
        yield patched(pod, mutate_pod(pod, controller_alive=True).ops)


def size_of(job: Object) -> int:
    specs: dict[str, Object] = job["spec"]["pytorchReplicaSpecs"]
    return sum(spec["replicas"] for spec in specs.values())


async def create_live_job(client: Client, namespace: str, name: str, *, homes: list[str]) -> None:
    """Create a job that kfext placed long ago, and its pods; `homes`: the node of each rank."""
    body = job_body(name, len(homes), held=False)
    body["spec"]["runPolicy"]["suspend"] = False
    collection = paths.jobs(KINDS["PyTorchJob"], namespace)
    job = await client.create(collection, body)
    keys = [ReplicaKey("master", 0), *(ReplicaKey("worker", i) for i in range(len(homes) - 1))]
    plan = Plan(job["metadata"]["uid"], 1, dict(zip(keys, homes, strict=True)))
    annotations = {"annotations": {names.PLAN: plan.encode()}}
    await client.merge_patch(f"{collection}/{name}", {"metadata": annotations})
    affinity = affinity_of(sorted(set(homes)))
    for pod, home in zip(gated_pods(job, affinity=affinity), homes, strict=True):
        del pod["spec"]["schedulingGates"]
        pod["spec"]["nodeName"] = home
        await client.create(paths.pods(namespace), pod)


async def clear(client: Client, namespace: str) -> None:
    """Delete the jobs and pods of a namespace, the jobs first, and wait until they are gone."""
    for collection in (paths.jobs(KINDS["PyTorchJob"], namespace), paths.pods(namespace)):
        listed = await client.list_all(collection)
        listed_names = [item["metadata"]["name"] for item in listed]
        await in_flight(client.delete(f"{collection}/{name}", grace=0) for name in listed_names)
