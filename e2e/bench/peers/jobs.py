"""The jobs and pods of the comparison, equal for all arms."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from e2e.bench.crowd import job_body
from e2e.testbed.trainer import RUNTIME
from kfext.model.kinds.registered import KINDS
from kfext.model.kinds.trainjob import TrainJob

Object = dict[str, Any]
_FILLERS_MEAN, _FILLERS_DEVIATION = 4.0, 2.0


def gang(name: str, pods: int, *, gpus: int = 1) -> Object:
    """Return a PyTorchJob of one master and `pods` - 1 workers with `gpus` GPUs each."""
    job = job_body(name, pods, held=False)
    job["spec"]["runPolicy"] = {}
    if gpus == 1:
        return job
    return with_templates(job, lambda template: _with_gpus(template, {"nvidia.com/gpu": str(gpus)}))


def train_job(name: str, pods: int) -> Object:
    """Return a TrainJob of `pods` pods, each with the requests of a pod of `gang`."""
    requests = job_body(name, pods, held=False)["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = requests["template"]["spec"]["containers"]
    trainer = {"numNodes": pods, "resourcesPerNode": container["resources"]}
    return {
        "apiVersion": KINDS[TrainJob.name].api_version,
        "kind": TrainJob.name,
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": trainer},
    }


def with_templates(job: Object, change: Callable[[Object], Object]) -> Object:
    """Return the job with `change` made to the pod template of every replica type.

    A TrainJob has no templates; its runtime is patched with the change of an empty template.
    """
    if job["kind"] == TrainJob.name:
        patch = {"name": "node", "template": {"spec": {"template": change({})}}}
        spec = {"template": {"spec": {"replicatedJobs": [patch]}}}
        patches = [{"manager": "example.com/bench", "trainingRuntimeSpec": spec}]
        return {**job, "spec": {**job["spec"], "runtimePatches": patches}}
    specs = {
        type_: {**replicas, "template": change(replicas["template"])}
        for type_, replicas in job["spec"]["pytorchReplicaSpecs"].items()
    }
    return {**job, "spec": {**job["spec"], "pytorchReplicaSpecs": specs}}


def fillers(nodes: int, *, gpus: int, seed: int) -> Iterator[Object]:
    """Yield bound single-GPU pods without an owner that use about half of all GPUs.

    Of the 8 that fit, a node has 4 on average (standard deviation 2), so few nodes are empty.
    """
    draw = random.Random(seed)
    for node in range(nodes):
        number_of_pods = round(draw.gauss(_FILLERS_MEAN, _FILLERS_DEVIATION))
        for number in range(min(gpus, max(0, number_of_pods))):
            yield _filler(f"filler-{node:03}-{number}", f"fake-{node:03}")


def _filler(name: str, node: str) -> Object:
    gpus = {"nvidia.com/gpu": "1"}
    requests = {"cpu": "2", "memory": "8Gi", **gpus}
    resources = {"requests": requests, "limits": gpus}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }


def _with_gpus(template: Object, gpus: Object) -> Object:
    containers = [
        {
            **container,
            "resources": {
                "requests": {**container["resources"]["requests"], **gpus},
                "limits": gpus,
            },
        }
        for container in template["spec"]["containers"]
    ]
    return {**template, "spec": {**template["spec"], "containers": containers}}
