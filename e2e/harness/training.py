"""Real training jobs, sent and waited for with the Kubeflow SDK as its users do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kubeflow.training import TrainingClient

from e2e.harness.install import kubectl
from e2e.testbed.cluster import Testbed

Object = dict[str, Any]
TRAINED_SECONDS = 600
"""How long a job may take that other tests and a cold disk slow down."""


def submit(bed: Testbed, job: Any, namespace: str) -> TrainingClient:
    """Send a job."""
    sdk = TrainingClient(config_file=str(bed.kubeconfig), namespace=namespace, job_kind=job.kind)
    sdk.create_job(job, namespace=namespace)
    return sdk


def trained(sdk: TrainingClient, job: Any, namespace: str) -> dict[str, str]:
    """Wait until a job has succeeded; return the node of each of its pods that are left."""
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
    """Suspend a job by hand, or resume it."""
    patch = json.dumps({"spec": {"runPolicy": {"suspend": value}}})
    name = job.metadata.name
    kubectl(bed, "patch", job.kind, name, "-n", namespace, "--type=merge", f"--patch={patch}")


def pods_of(bed: Testbed, namespace: str, job: str = "") -> dict[str, Object]:
    """Return the pods of a job, or of all jobs, by name, with those that are ending."""
    selector = f"?labelSelector=training.kubeflow.org%2Fjob-name%3D{job}" if job else ""
    items = bed.api.get(f"/api/v1/namespaces/{namespace}/pods{selector}")["items"]
    return {pod["metadata"]["name"]: pod for pod in items}


def totals(bed: Testbed, namespace: str, pod: str) -> Object:
    """Return the totals that a program of ours printed last."""
    log = kubectl(bed, "logs", "-n", namespace, pod)
    found: Object = json.loads(log.strip().splitlines()[-1])
    return found


@contextmanager
def policy(bed: Testbed, namespace: str, **spec: Any) -> Iterator[None]:
    """Have a TrainingPolicy hold for a namespace."""
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
