"""Real training jobs as objects of the Kubeflow SDK, submitted and awaited with the SDK.

They have CPU requests = limits, one thread and fixed seeds, so that runs with different placements
differ only in placement and network.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from urllib.parse import quote

from kubeflow.training import (
    KubeflowOrgV1ElasticPolicy,
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    KubeflowOrgV1TFJob,
    KubeflowOrgV1TFJobSpec,
    TrainingClient,
)
from kubernetes import client

from e2e.harness.install import kubectl
from e2e.harness.jobs import ended, jobs_path
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.images import TENSORFLOW_IMAGE, TRAINING_IMAGE
from kfext import names
from kfext.model.kinds.registered import KINDS

_GRACE_SECONDS = 2
_MEMORY = "700Mi"
Object = dict[str, Any]
TRAINED_SECONDS = 600
"""The deadline for the end of a job, generous enough for a busy machine and a cold disk."""
_RATE = re.compile(r"^step=.* steps_per_second=([0-9.]+)$", re.MULTILINE)
_FEW_STEPS = ("--model", "cnn", "--steps", "10")


def pytorch_job(
    name: str,
    *,
    workers: int = 1,
    cpu: str = "200m",
    memory: str = _MEMORY,
    arguments: tuple[str, ...] = (),
) -> KubeflowOrgV1PyTorchJob:
    """Return a PyTorchJob for DDP with one master and `workers` workers."""
    command = ["python3", "/jobs/train_ddp.py", *arguments]
    return KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=client.V1ObjectMeta(name=name),
        spec=KubeflowOrgV1PyTorchJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
            pytorch_replica_specs={
                kind: _replicas(
                    count,
                    container="pytorch",
                    image=TRAINING_IMAGE,
                    command=command,
                    limits={"cpu": cpu, "memory": memory},
                )
                for kind, count in (("Master", 1), ("Worker", workers))
            },
        ),
    )


def tf_job(
    name: str, *, workers: int = 1, cpu: str = "150m", arguments: tuple[str, ...] = ()
) -> KubeflowOrgV1TFJob:
    """Return a TFJob with one chief, one parameter server and `workers` workers."""
    command = ["python3", "/jobs/train_tf.py", *arguments]
    return KubeflowOrgV1TFJob(
        api_version="kubeflow.org/v1",
        kind="TFJob",
        metadata=client.V1ObjectMeta(name=name),
        spec=KubeflowOrgV1TFJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="Running"),
            tf_replica_specs={
                kind: _replicas(
                    count,
                    container="tensorflow",
                    image=TENSORFLOW_IMAGE,
                    command=command,
                    limits={"cpu": cpu, "memory": _MEMORY},
                )
                for kind, count in (("Chief", 1), ("PS", 1), ("Worker", workers))
            },
        ),
    )


def _replicas(
    count: int, *, container: str, image: str, command: list[str], limits: dict[str, str]
) -> KubeflowOrgV1ReplicaSpec:
    return KubeflowOrgV1ReplicaSpec(
        replicas=count,
        restart_policy="OnFailure",
        template=client.V1PodTemplateSpec(
            spec=client.V1PodSpec(
                # Short, because a parameter server never ends by itself, and saves nothing.
                termination_grace_period_seconds=_GRACE_SECONDS,
                containers=[
                    client.V1Container(
                        name=container,
                        image=image,
                        image_pull_policy="IfNotPresent",
                        command=command,
                        resources=client.V1ResourceRequirements(requests=limits, limits=limits),
                    )
                ],
            )
        ),
    )


def submit(bed: Testbed, job: Any, namespace: str) -> TrainingClient:
    """Submit a job with the SDK, and return the client."""
    sdk = TrainingClient(config_file=str(bed.kubeconfig), namespace=namespace, job_kind=job.kind)
    sdk.create_job(job, namespace=namespace)
    return sdk


def wait_trained(sdk: TrainingClient, job: Any, namespace: str) -> dict[str, str]:
    """Wait until a job has succeeded; return the node of each remaining pod."""
    name = job.metadata.name
    sdk.wait_for_job_conditions(
        name,
        namespace=namespace,
        job_kind=job.kind,
        polling_interval=1,
        wait_timeout=TRAINED_SECONDS,
    )
    pods = sdk.get_job_pods(name, namespace=namespace)
    return {pod.metadata.name: pod.spec.node_name for pod in pods}


def set_suspend(bed: Testbed, job: Any, namespace: str, *, value: bool) -> None:
    patch = json.dumps({"spec": {"runPolicy": {"suspend": value}}})
    name = job.metadata.name
    kubectl(bed, "patch", job.kind, name, "-n", namespace, "--type=merge", f"--patch={patch}")


def wait_succeeded(bed: Testbed, namespace: str, kind: str, name: str) -> list[Object]:
    """Wait until a job has succeeded; return its pods. Raises RuntimeError if it has failed."""
    path = jobs_path(namespace, kind, name)
    end = until(lambda: ended(bed.api.get(path)), what=f"{name} has ended", seconds=TRAINED_SECONDS)
    if end == "Failed":
        raise RuntimeError(f"{kind} {name} in namespace {namespace} has failed")
    selector = quote(f"{KINDS[kind].job_label}={name}", safe="")
    return list(
        bed.api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
    )


def pods_of(bed: Testbed, namespace: str, job: str = "") -> dict[str, Object]:
    """Return the pods of a job, or all pods of a namespace, by name, with terminating pods."""
    selector = f"?labelSelector=training.kubeflow.org%2Fjob-name%3D{job}" if job else ""
    items = bed.api.get(f"/api/v1/namespaces/{namespace}/pods{selector}")["items"]
    return {pod["metadata"]["name"]: pod for pod in items}


def step_ms(log: str) -> float | None:
    """Return the median step time in a log of e2e/jobs, in milliseconds, or None without steps."""
    rates = _RATE.findall(log)
    return median(1000 / float(rate) for rate in rates) if rates else None


def totals(bed: Testbed, namespace: str, pod: str) -> Object:
    """Return the totals, which a program of e2e/jobs prints in its last line."""
    log = kubectl(bed, "logs", "-n", namespace, pod)
    last: Object = json.loads(log.strip().splitlines()[-1])
    return last


@contextmanager
def policy(bed: Testbed, namespace: str, **spec: Any) -> Iterator[None]:
    """Apply a TrainingPolicy to a namespace during a `with` block."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    body = {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": namespace},
        "spec": {"namespaceSelector": selector, **spec},
    }
    bed.api.apply(body)
    try:
        yield
    finally:
        bed.api.delete(f"/apis/kfext.dev/v1alpha1/trainingpolicies/{namespace}")


def replica_specs(job: Any) -> Any:
    """Return the replica specs of a job of the SDK, by type."""
    return getattr(job.spec, "pytorch_replica_specs", None) or job.spec.tf_replica_specs


def with_network(job: Any, network: str = "host", **places: str) -> Any:
    """Add a network setting to a job; return the job. `places`: the node for each replica type."""
    job.metadata.annotations = {names.NETWORK: network}
    for type_, node in places.items():
        replica_specs(job)[type_].template.spec.node_selector = {names.HOSTNAME: node}
    return job


def ddp(name: str, *, workers: int = 1, steps: int = 10, model: str = "cnn") -> Any:
    """Return a PyTorchJob with small pods, which are even smaller with more than one worker."""
    arguments = ("--model", model, "--steps", str(steps))
    small = {"cpu": "60m", "memory": "280Mi"} if workers > 1 else {}
    job = pytorch_job(name, workers=workers, arguments=arguments, **small)
    if not workers:
        del replica_specs(job)["Worker"]  # with 0 replicas the operator may still create a pod
    return job


def with_torchrun(job: Any) -> Any:
    """Make torchrun start the program of a job; return the job."""
    for spec in replica_specs(job).values():
        (container,) = spec.template.spec.containers
        container.command = ["torchrun", *container.command[1:]]
    job.spec.nproc_per_node = "1"
    return job


def elastic(workers: int) -> Any:
    """Return a PyTorchJob with an elasticPolicy for a fixed number of workers and no master."""
    job = with_torchrun(pytorch_job("elastic", workers=workers, arguments=_FEW_STEPS))
    del replica_specs(job)["Master"]
    job.spec.elastic_policy = KubeflowOrgV1ElasticPolicy(
        rdzv_backend="c10d", min_replicas=workers, max_replicas=workers, max_restarts=3
    )
    return job


def dynamic(name: str, *, steps: int) -> Any:
    """Return a TFJob with dynamic workers; each knows only itself and the parameter server."""
    job = tf_job(name, workers=2, arguments=("--steps", str(steps)))
    del replica_specs(job)["Chief"]
    job.spec.enable_dynamic_worker = True
    return job


def on_host(pod: Any) -> bool:
    """Return whether a pod uses the network of its node."""
    return (
        pod["spec"].get("hostNetwork") is True and pod["status"]["podIP"] == pod["status"]["hostIP"]
    )


def train(bed: Testbed, job: Any, namespace: str) -> list[Any]:
    """Submit a job, wait until it has succeeded, and return its pods."""
    wait_trained(submit(bed, job, namespace), job, namespace)
    return list(pods_of(bed, namespace, job.metadata.name).values())
