"""Real jobs with a changing number of workers; all nodes of a testbed share their checkpoints.

All pods have CPU requests = limits. With kfext, kfext writes a PyTorchJob's elasticPolicy;
without kfext, the job's user writes it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kubernetes import client
from kubernetes.client import ApiClient

from e2e.harness.jobs import jobs_path, specs
from e2e.harness.training import pytorch_job, replica_specs, tf_job
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node
from kfext import names

_MOUNT_PATH = "/checkpoints"
_KFEXT_MILLICORES = 200
"""The CPU requests of kfext's own pods on a node, with a margin."""
_SPARE_MILLICORES = 40
"""CPU that stays free because no pod of a job fits into it."""
Object = dict[str, Any]
_RESTARTS = 100
"""The maxRestarts that kfext writes; each worker that ends costs torchrun a restart."""


def half_node(node: Node) -> str:
    """Return the largest CPU request that lets two pods fit on a node beside kfext."""
    return f"{(node.millicores - _KFEXT_MILLICORES - _SPARE_MILLICORES) // 2}m"


def elastic_ddp(
    name: str, workers: int, *, cpu: str, folder: Path, sizes: str = "", arguments: Sequence[str]
) -> Any:
    """Return a PyTorchJob with a Master and Workers, started by torchrun, as its user writes it.

    `sizes`: the allowed numbers of pods, as MIN-MAX; empty if kfext must not change the number.
    """
    job = pytorch_job(name, workers=workers - 1, cpu=cpu)
    if workers == 1:
        del replica_specs(job)["Worker"]
    job.spec.nproc_per_node = "1"
    return _training(job, ["torchrun", "/jobs/elastic_ddp.py", *arguments], folder, sizes)


def elastic_ps(
    name: str, workers: int, *, cpu: str, folder: Path, sizes: str = "", arguments: Sequence[str]
) -> Any:
    """Return a TFJob with a parameter server and dynamic workers."""
    job = tf_job(name, workers=workers, cpu=cpu)
    del replica_specs(job)["Chief"]
    job.spec.enable_dynamic_worker = True
    return _training(job, ["python3", "/jobs/elastic_ps.py", *arguments], folder, sizes)


def _training(job: Any, command: list[str], folder: Path, sizes: str) -> Any:
    if sizes:
        job.metadata.annotations = {names.ELASTIC: sizes}
    source = client.V1HostPathVolumeSource(path=str(folder), type="DirectoryOrCreate")
    for spec in replica_specs(job).values():
        pod = spec.template.spec
        pod.volumes = [client.V1Volume(name="checkpoints", host_path=source)]
        (container,) = pod.containers
        container.command = command
        container.volume_mounts = [client.V1VolumeMount(name="checkpoints", mount_path=_MOUNT_PATH)]
    return job


def on_claim(job: Any, claim: str) -> Any:
    """Put the checkpoints of a job on a claim, in a folder with the job's name; return the job."""
    source = client.V1PersistentVolumeClaimVolumeSource(claim_name=claim)
    for spec in replica_specs(job).values():
        pod = spec.template.spec
        pod.volumes = [client.V1Volume(name="checkpoints", persistent_volume_claim=source)]
        pod.containers[0].volume_mounts[0].sub_path = job.metadata.name
    return job


def journal(folder: Path) -> list[str]:
    """Return all lines that the pods of a job have printed so far; they share one file."""
    path = folder / "journal"
    return path.read_text().splitlines() if path.exists() else []


def final_loss(folder: Path) -> float:
    """Return the loss in the last line that a job printed."""
    loss: float = json.loads(journal(folder)[-1])["loss"]
    return loss


def torch_body(
    name: str, pods: int, *, cpu: str, folder: Path, sizes: str, arguments: Sequence[str]
) -> Object:
    """Return `elastic_ddp` with `pods` pods as a plain object."""
    job = elastic_ddp(name, pods, cpu=cpu, folder=folder, sizes=sizes, arguments=arguments)
    return _as_object(job)


def tf_body(
    name: str, workers: int, *, cpu: str, folder: Path, sizes: str, arguments: Sequence[str]
) -> Object:
    """Return `elastic_ps` as a plain object."""
    job = elastic_ps(name, workers, cpu=cpu, folder=folder, sizes=sizes, arguments=arguments)
    return _as_object(job)


def with_policy(body: Object, *, least: int, most: int, last_call: int | None = None) -> Object:
    """Return a PyTorchJob with an elasticPolicy, its Master counted as a Worker.

    `last_call`: how many seconds torchrun waits for more workers once it has the minimum; None
    means its default of 30 s.
    """
    policy: Object = {
        "rdzvBackend": "c10d",
        "minReplicas": least,
        "maxReplicas": most,
        "maxRestarts": _RESTARTS,
    }
    if last_call is not None:
        policy["rdzvConf"] = [{"key": "last_call_timeout", "value": str(last_call)}]
    replicas = specs(body)
    worker = {
        **replicas["Master"],
        "replicas": sum(replica["replicas"] for replica in replicas.values()),
    }
    spec = {**body["spec"], "elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": worker}}
    return {**body, "spec": spec}


def with_grace(body: Object, seconds: int) -> Object:
    """Set the termination grace period of a job's pods; return the job."""
    for spec in specs(body).values():
        spec["template"]["spec"]["terminationGracePeriodSeconds"] = seconds
    return body


def becomes_elastic(bed: Testbed, namespace: str) -> bool:
    """Return whether kfext would add an elasticPolicy to a job in a namespace, from a dry run."""
    body = torch_body("trial", 2, cpu="100m", folder=Path("/trial"), sizes="1-4", arguments=())
    path = f"{jobs_path(namespace, body['kind'])}?dryRun=All"
    return "elasticPolicy" in bed.api.create(path, body)["spec"]


def delete_remaining(bed: Testbed, namespace: str, job: str, pods: Sequence[Object]) -> None:
    """Delete an ended job's running pods; a torchrun agent that starts now restarts forever."""
    ended = {"Succeeded", "Failed"}
    if any(
        "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ended
        for pod in pods
    ):
        labels = quote(f"{names.JOB_NAME}={job}", safe="")
        fields = quote("status.phase!=Succeeded,status.phase!=Failed", safe="")
        path = f"/api/v1/namespaces/{namespace}/pods"
        bed.api.delete(f"{path}?labelSelector={labels}&fieldSelector={fields}")


def _as_object(job: Any) -> Object:
    body: Object = ApiClient().sanitize_for_serialization(job)
    body["metadata"].setdefault("annotations", {})
    return body
