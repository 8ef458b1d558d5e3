"""Real jobs, submitted with the Kubeflow SDK or kubectl, succeed where kfext places them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.install import kubectl
from e2e.harness.jobs import ended, jobs_path
from e2e.harness.training import (
    TRAINED_SECONDS,
    pytorch_job,
    set_suspend,
    submit,
    tf_job,
    wait_trained,
)
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY

NEED_MORE = {
    "trainjob": "Kubeflow Trainer",
    "shared-gpu": "GPUs",
    "sweep": "GPUs and Katib",
    "elastic": "the cluster of `make up`, which `test_story.py` has",
    "resize": "the same cluster",
}
"""The examples that the cluster of these cases cannot run, and what they need."""
FILES = sorted(
    path for path in (REPOSITORY / "examples").glob("*.yaml") if path.stem not in NEED_MORE
)


def _view(bed: Testbed, name: str, namespace: str) -> Any:
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans/{name}"
    return bed.api.get(path).get("status")


def test_C1_plain_kubernetes_spreads_a_job_that_kfext_puts_on_one_node(
    bed: Testbed, plain: str, managed: str
) -> None:
    job = pytorch_job("ddp", arguments=("--model", "cnn", "--steps", "20"))

    spread = wait_trained(submit(bed, job, plain), job, plain)
    together = wait_trained(submit(bed, job, managed), job, managed)

    assert len(set(spread.values())) == 2
    assert len(together) == 2
    assert len(set(together.values())) == 1


@pytest.mark.long
def test_a_tfjob_with_a_parameter_server_trains_on_one_node(bed: Testbed, managed: str) -> None:
    # All three fit on a node of a machine with two cores, beside half of kfext.
    job = tf_job("ps", cpu="180m", arguments=("--steps", "40"))

    places = wait_trained(submit(bed, job, managed), job, managed)

    view = _view(bed, "tfjob-ps", managed)
    assert view["workers"] == 2  # without the server
    assert view["nodes"] == sorted(set(places.values()))
    assert len(set(places.values())) == 1


@pytest.mark.long
@pytest.mark.parametrize("model", ["cnn", "resnet", "mlp", "embedding"])
def test_every_model_trains_on_one_node(bed: Testbed, managed: str, model: str) -> None:
    job = pytorch_job(model, arguments=("--model", model, "--steps", "20"))

    places = wait_trained(submit(bed, job, managed), job, managed)

    assert len(set(places.values())) == 1


@pytest.mark.long
def test_a_job_succeeds_although_every_kfext_pod_is_killed(bed: Testbed, managed: str) -> None:
    job = pytorch_job("survivor", arguments=("--model", "cnn", "--steps", "60"))
    sdk = submit(bed, job, managed)

    kubectl(bed, "delete", "pods", "-n", "kfext-system", "--all", "--force", "--grace-period=0")

    assert len(set(wait_trained(sdk, job, managed).values())) == 1


@pytest.mark.long
def test_a_person_may_suspend_and_resume_a_training_job(bed: Testbed, managed: str) -> None:
    job = pytorch_job("paused", arguments=("--model", "cnn", "--steps", "60"))
    sdk = submit(bed, job, managed)
    bed.wait_for(
        lambda: sdk.is_job_running("paused", namespace=managed), what="Running", seconds=300
    )

    set_suspend(bed, job, managed, value=True)
    bed.wait_for(
        lambda: not sdk.get_job_pods("paused", namespace=managed), what="no pods", seconds=300
    )
    set_suspend(bed, job, managed, value=False)

    assert len(set(wait_trained(sdk, job, managed).values())) == 1


def test_the_sdk_gives_up_waiting_but_the_job_stays_queued(bed: Testbed, managed: str) -> None:
    job = pytorch_job("too-big", cpu="64")
    sdk = submit(bed, job, managed)

    with pytest.raises(TimeoutError):
        sdk.wait_for_job_conditions(
            "too-big", namespace=managed, job_kind=job.kind, polling_interval=1, wait_timeout=3
        )

    view = bed.wait_for(
        lambda: _view(bed, "pytorchjob-too-big", managed), what="its TrainingPlan", seconds=60
    )
    assert view["phase"] == "Queued"
    assert view["reason"] == "TooBig"


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_trains_to_its_end(bed: Testbed, managed: str, path: Path) -> None:
    kubectl(bed, "apply", "-n", managed, "-f", str(path))

    manifest = yaml.safe_load(path.read_text())
    job = jobs_path(managed, manifest["kind"], manifest["metadata"]["name"])
    outcome = until(lambda: ended(bed.api.get(job)), what="it has ended", seconds=TRAINED_SECONDS)

    assert outcome == "Succeeded"
