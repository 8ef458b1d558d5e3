"""The callback of Hugging Face Transformers posts from a real container, or finds no token to.

The testbed has no kube-proxy, so the Service of the posts leads nowhere until a case leads it.
"""

import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from e2e.harness.training import pytorch_job, submit, trained
from e2e.harness.wait import until
from e2e.testbed import paths
from e2e.testbed.cluster import Testbed
from e2e.testbed.images.recipes import install
from e2e.testbed.preflight import Unavailable
from e2e.testbed.realnodes import nodes
from e2e.testbed.realnodes.network import lead_service
from kfext import names

pytestmark = pytest.mark.long
VERSION = "transformers==5.24.0"
AT = "/transformers"
STEPS = 60
TRAINS = f"""
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


@pytest.fixture(scope="module")
def packages() -> Path:
    """A folder of this machine, and so of its nodes, with Transformers for the training image."""
    folder = paths.cache() / VERSION.replace("==", "-")
    found = folder / "usr/local/lib/python3.11/dist-packages"
    if not (found / "transformers").exists():
        try:
            install(folder, [VERSION])
        except Unavailable as missing:
            pytest.skip(str(missing))
    return found


def posting(name: str, packages: Path) -> Any:
    """A PyTorchJob of one pod that trains with the callback and prints nothing."""
    job = pytorch_job(name)
    job.metadata.annotations = {names.METRICS: "push"}
    del job.spec.pytorch_replica_specs["Worker"]
    spec = job.spec.pytorch_replica_specs["Master"].template.spec
    (container,) = spec.containers
    container.command = ["python3", "-c", textwrap.dedent(TRAINS)]
    container.env = [client.V1EnvVar(name="PYTHONPATH", value=AT)]
    container.volume_mounts = [client.V1VolumeMount(name="t", mount_path=AT, read_only=True)]
    host = client.V1HostPathVolumeSource(path=str(packages))
    spec.volumes = [client.V1Volume(name="t", host_path=host)]
    return job


def lead_posts(bed: Testbed) -> None:
    """Lead the Service of the posts to a pod of the webhook, as kube-proxy does."""
    system = f"/api/v1/namespaces/{names.NAMESPACE}"
    service = bed.api.get(f"{system}/services/{names.PROGRESS_SERVICE}")
    pods = bed.api.get(f"{system}/pods?labelSelector=app.kubernetes.io/component=webhook")
    address = next(pod["status"]["podIP"] for pod in pods["items"])
    for index, _ in enumerate(nodes(bed)):
        target = f"{address}:9443"
        lead_service(bed, index, service["spec"]["clusterIP"], target=target)


def known(bed: Testbed, plan: str, namespace: str) -> str:
    """Return what the TrainingPlan says of how the progress is known, empty without a plan."""
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans"
    plans = {found["metadata"]["name"]: found for found in bed.api.get(path)["items"]}
    conditions = plans.get(plan, {}).get("status", {}).get("conditions", [])
    said = [each["message"] for each in conditions if each["type"] == names.PROGRESS_KNOWN]
    return said[0] if said else ""


def test_a_training_that_cannot_reach_the_endpoint_does_not_wait_for_it(
    bed: Testbed, managed: str, packages: Path
) -> None:
    job = posting("alone", packages)
    trained(submit(bed, job, managed), job, managed)
    assert "posts" not in known(bed, "pytorchjob-alone", managed)


def test_a_training_with_transformers_posts_its_progress_without_a_change(
    bed: Testbed, managed: str, packages: Path
) -> None:
    lead_posts(bed)
    job = posting("posts", packages)
    sdk = submit(bed, job, managed)
    said = partial(known, bed, "pytorchjob-posts", managed)
    until(lambda: said() == "the job posts loss", what="posts count", seconds=180.0)
    trained(sdk, job, managed)
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{managed}/trainingplans/pytorchjob-posts"
    last = until(
        lambda: (bed.api.get(path)["status"].get("progress") or {}).get("step") == STEPS,
        what="the last step is shown",
    )
    assert last
