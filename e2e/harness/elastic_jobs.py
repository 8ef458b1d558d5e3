"""Real jobs whose workers come and go; all nodes of a testbed see their checkpoints."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubernetes import client

from e2e.harness.network_jobs import replica_specs
from e2e.harness.sdk_jobs import pytorch_job, tf_job
from e2e.testbed.realnodes import Node
from kfext import names

_SEEN_AT = "/checkpoints"
_KFEXT_MILLICORES = 200
"""Of a node, at most: its share of kfext's own pods, and a little."""
_SPARE_MILLICORES = 40
"""That no pod of a job fits into."""


def half_node(node: Node) -> str:
    """Return the CPU of a pod of which a node holds two beside kfext, and not three."""
    return f"{(node.millicores - _KFEXT_MILLICORES - _SPARE_MILLICORES) // 2}m"


def elastic_ddp(
    name: str, workers: int, *, cpu: str, folder: Path, sizes: str = "", arguments: Sequence[str]
) -> Any:
    """Return a PyTorchJob as its user writes it: a Master and Workers that torchrun starts.

    `sizes`: how many pods kfext may give it; as many as it has if empty.
    """
    job = pytorch_job(name, workers=workers - 1, cpu=cpu)
    if workers == 1:
        del replica_specs(job)["Worker"]
    job.spec.nproc_per_node = "1"
    return _training(job, ["torchrun", "/jobs/elastic_ddp.py", *arguments], folder, sizes)


def elastic_ps(
    name: str, workers: int, *, cpu: str, folder: Path, sizes: str = "", arguments: Sequence[str]
) -> Any:
    """Return a TFJob of a parameter server and dynamic workers."""
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
        container.volume_mounts = [client.V1VolumeMount(name="checkpoints", mount_path=_SEEN_AT)]
    return job


def journal(folder: Path) -> list[str]:
    """Return what a job has printed so far, whichever of its pods did."""
    path = folder / "journal"
    return path.read_text().splitlines() if path.exists() else []


def final_loss(folder: Path) -> float:
    """Return the loss with which a job has ended."""
    found: float = json.loads(journal(folder)[-1])["loss"]
    return found
