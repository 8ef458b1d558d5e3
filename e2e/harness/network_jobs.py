"""Real jobs that ask for the host network, in every way in which their replicas may meet."""

from typing import Any

from kubeflow.training import KubeflowOrgV1ElasticPolicy

from e2e.harness.sdk_jobs import pytorch_job, tf_job
from e2e.harness.training import pods_of, submit, trained
from e2e.testbed.cluster import Testbed
from kfext import names

_FEW_STEPS = ("--model", "cnn", "--steps", "10")


def replica_specs(job: Any) -> Any:
    """Return the replica specs of a job of the SDK, by type."""
    return getattr(job.spec, "pytorch_replica_specs", None) or job.spec.tf_replica_specs


def asking(job: Any, network: str = "host", **places: str) -> Any:
    """Have a job ask for a network, and send the pods of its types to nodes."""
    job.metadata.annotations = {names.NETWORK: network}
    for type_, node in places.items():
        replica_specs(job)[type_].template.spec.node_selector = {names.HOSTNAME: node}
    return job


def ddp(name: str, *, workers: int = 1, steps: int = 10, model: str = "cnn") -> Any:
    """Return a PyTorchJob of which three, or nine small pods, fit one node."""
    arguments = ("--model", model, "--steps", str(steps))
    small = {"cpu": "60m", "memory": "280Mi"} if workers > 1 else {}
    job = pytorch_job(name, workers=workers, arguments=arguments, **small)
    if not workers:
        del replica_specs(job)["Worker"]  # of none the operator may make one all the same
    return job


def with_torchrun(job: Any) -> Any:
    """Have torchrun start the program of a job."""
    for spec in replica_specs(job).values():
        (container,) = spec.template.spec.containers
        container.command = ["torchrun", *container.command[1:]]
    job.spec.nproc_per_node = "1"
    return job


def elastic(workers: int) -> Any:
    """Return a PyTorchJob of torchrun's workers, that meet at the first of them."""
    job = with_torchrun(pytorch_job("elastic", workers=workers, arguments=_FEW_STEPS))
    del replica_specs(job)["Master"]
    job.spec.elastic_policy = KubeflowOrgV1ElasticPolicy(
        rdzv_backend="c10d", min_replicas=workers, max_replicas=workers, max_restarts=3
    )
    return job


def dynamic(name: str, *, steps: int) -> Any:
    """Return a TFJob whose workers may come and go: each is told of itself and the server only."""
    job = tf_job(name, workers=2, arguments=("--steps", str(steps)))
    del replica_specs(job)["Chief"]
    job.spec.enable_dynamic_worker = True
    return job


def on_host(pod: Any) -> bool:
    """Return whether a pod has the network of its node."""
    return (
        pod["spec"].get("hostNetwork") is True and pod["status"]["podIP"] == pod["status"]["hostIP"]
    )


def train(bed: Testbed, job: Any, namespace: str) -> list[Any]:
    """Train a job to Succeeded; return its pods."""
    trained(submit(bed, job, namespace), job, namespace)
    return list(pods_of(bed, namespace, job.metadata.name).values())
