"""A program that posts its progress to kfext with the callback of Hugging Face Transformers.

The testbed has no kube-proxy, so `route_posts` routes the Service that receives posts to a pod.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.testbed import paths
from e2e.testbed.cluster import Testbed
from e2e.testbed.images.recipes import install
from e2e.testbed.preflight import Unavailable
from e2e.testbed.realnodes import nodes
from e2e.testbed.realnodes.network import route_service
from kfext import names

_VERSION = "transformers==5.24.0"
_MOUNT_PATH = "/transformers"
STEPS = 60
_PROGRAM = f"""
    import os, time
    from types import SimpleNamespace as Of
    from transformers.integrations.integration_utils import KubeflowCallback

    token = os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]
    time.sleep(5)  # as a model takes to load
    state = Of(is_world_process_zero=True, max_steps={STEPS}, global_step=0, epoch=0.0)
    callback, waited = KubeflowCallback(), 0.0
    callback.on_train_begin(None, state, None)
    for step in range(1, {STEPS + 1}):
        time.sleep(1)
        state.global_step = step
        callback.on_log(None, state, None, logs={{"loss": 1 / step}})
        began = time.monotonic()
        callback.on_step_end(None, state, None)
        waited += time.monotonic() - began
    callback.on_train_end(None, state, None)
    assert waited < 1 or os.path.exists(token), waited
"""


def packages_with_transformers() -> Path:
    """Return a folder with Transformers for the images' Python; the nodes can mount it."""
    folder = paths.cache() / _VERSION.replace("==", "-")
    packages = folder / "usr/local/lib/python3.11/dist-packages"
    if not (packages / "transformers").exists():
        try:
            install(folder, [_VERSION])
        except Unavailable as missing:
            pytest.skip(str(missing))
    return packages


class Program:
    """The fields of a container and a pod that run the program, which prints nothing."""

    def __init__(self, packages: Path) -> None:
        host = {"path": str(packages)}
        self.command = ["python3", "-c", textwrap.dedent(_PROGRAM)]
        self.env = [{"name": "PYTHONPATH", "value": _MOUNT_PATH}]
        self.mounts = [{"name": "t", "mountPath": _MOUNT_PATH, "readOnly": True}]
        self.volumes = [{"name": "t", "hostPath": host}]


@contextmanager
def route_posts(bed: Testbed) -> Iterator[None]:
    """During a `with` block, route the Service that receives posts to a pod of the webhook."""
    system = f"/api/v1/namespaces/{names.NAMESPACE}"
    service = bed.api.get(f"{system}/services/{names.PROGRESS_SERVICE}")
    pods = bed.api.get(f"{system}/pods?labelSelector=app.kubernetes.io/component=webhook")
    address = next(pod["status"]["podIP"] for pod in pods["items"])
    cluster_ip, target = service["spec"]["clusterIP"], f"{address}:9443"
    for index, _ in enumerate(nodes(bed)):
        route_service(bed, index, cluster_ip, target=target)
    try:
        yield
    finally:
        for index, _ in enumerate(nodes(bed)):
            route_service(bed, index, cluster_ip, target=target, ends=True)


def progress_message(bed: Testbed, plan: str, namespace: str) -> str:
    """Return the message of a TrainingPlan's condition ProgressKnown; empty without it."""
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans"
    plans = {each["metadata"]["name"]: each for each in bed.api.get(path)["items"]}
    conditions = plans.get(plan, {}).get("status", {}).get("conditions", [])
    messages = [each["message"] for each in conditions if each["type"] == names.PROGRESS_KNOWN]
    return messages[0] if messages else ""
