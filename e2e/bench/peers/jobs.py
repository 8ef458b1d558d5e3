"""The jobs and pods of the comparison, equal for all arms."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from e2e.bench.crowd import job_body
from e2e.testbed.trainer import RUNTIME
from kfext.model.kinds.registered import KINDS
from kfext.model.kinds.trainjob import TrainJob

Object = dict[str, Any]
_FILLED_MEAN, _FILLED_DEVIATION = 4.0, 2.0


def gang(name: str, pods: int, *, gpus: int = 1) -> Object:
    """Return a PyTorchJob of one master and `pods` - 1 workers with `gpus` GPUs each."""
    job = job_body(name, pods, held=False)
    job["spec"]["runPolicy"] = {}
    if gpus == 1:
        return job
    return with_templates(job, lambda template: _sized(template, {"nvidia.com/gpu": str(gpus)}))


def train_job(name: str, pods: int) -> Object:
    """Return a TrainJob of as many pods, each as large as a pod of `gang`."""
    requests = job_body(name, pods, held=False)["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = requests["template"]["spec"]["containers"]
    size = {"numNodes": pods, "resourcesPerNode": container["resources"]}
    return {
        "apiVersion": KINDS[TrainJob.name].api_version,
        "kind": TrainJob.name,
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": size},
    }


def with_templates(job: Object, change: Callable[[Object], Object]) -> Object:
    """Return the job with `change` made to the pod template of every replica type.

    A TrainJob has no templates: the change of an empty template patches its runtime.
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

    A node has a mean of 4 of them (standard deviation 2), of the 8 that fit: few nodes are empty.
    """
    draw = random.Random(seed)
    for node in range(nodes):
        number_of_pods = round(draw.gauss(_FILLED_MEAN, _FILLED_DEVIATION))
        for number in range(min(gpus, max(0, number_of_pods))):
            yield _filler(f"filler-{node:03}-{number}", f"fake-{node:03}")


def _filler(name: str, node: str) -> Object:
    gpu = {"nvidia.com/gpu": "1"}
    requests = {"cpu": "2", "memory": "8Gi", **gpu}
    resources = {"requests": requests, "limits": gpu}
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


def _sized(template: Object, gpu: Object) -> Object:
    containers = [
        {
            **container,
            "resources": {
                "requests": {**container["resources"]["requests"], **gpu},
                "limits": gpu,
            },
        }
        for container in template["spec"]["containers"]
    ]
    return {**template, "spec": {**template["spec"], "containers": containers}}
