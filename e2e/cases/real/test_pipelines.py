"""Steps of a pipeline train on real nodes, with the service account that Kubeflow gives pipelines.

Kubeflow Pipelines and Argo cannot be built here. A step runs the command that kfp compiled, with
the inputs and variables that the back end would set.
"""

from pathlib import Path
from typing import Any

import pytest

from e2e.harness.install import kubectl
from e2e.harness.jobs import jobs_path
from e2e.harness.steps import (
    VERSION,
    Steps,
    check_retry_adopts_job,
    packages_of_steps,
    run_as_author,
)
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from kfext import names

TRAIN = ["python3", "/jobs/train_ddp.py", "--model", "cnn", "--print-every", "5", "--steps", "20"]
SMALL: dict[str, Any] = {"resources": {"limits": {"cpu": "150m", "memory": "700Mi"}}}
_STARTED_SECONDS = 180.0
WAITS: dict[str, Any] = {
    "command": TRAIN,
    "settings": {"colocation": "required"},
    "task_config": {"resources": {"limits": {"cpu": "64"}}},
}


folder = pytest.fixture(scope="module")(packages_of_steps)


@pytest.fixture
def steps(bed: Testbed, managed: str, folder: Path) -> Steps:
    return Steps(bed, managed, folder)


def jobs(bed: Testbed, namespace: str) -> list[Any]:
    return list(bed.api.get(jobs_path(namespace, "PyTorchJob"))["items"])


def only_job(bed: Testbed, namespace: str) -> Any:
    """Wait until the only step has created its job; return the job."""

    def first() -> Any:
        return next(iter(jobs(bed, namespace)), None)

    return until(first, what="the step has its job", seconds=_STARTED_SECONDS)


def test_a_step_trains_with_the_permissions_of_its_account(
    bed: Testbed, managed: str, steps: Steps, two_nodes: tuple[str, str]
) -> None:
    variables = [{"name": "A", "value": "b"}]
    task = {**SMALL, "nodeSelector": {names.HOSTNAME: two_nodes[0]}, "env": variables}
    settings = {"colocation": "required"}
    steps.start("one", command=TRAIN, replicas=2, settings=settings, task_config=task)
    assert steps.wait_ended("one") == "Succeeded"

    (job,) = jobs(bed, managed)
    assert job["metadata"]["annotations"][names.COLOCATION] == "required"
    spec = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert spec["nodeSelector"] == task["nodeSelector"]
    assert spec["containers"][0]["env"] == variables
    assert f"Placed on {two_nodes[0]}" in steps.log("one")


def test_a_retry_adopts_the_waiting_job_and_a_deleted_step_deletes_it(
    bed: Testbed, managed: str, steps: Steps
) -> None:
    steps.start("one", **WAITS)
    steps.wait_printed("one", "Queued: TooBig")
    job = only_job(bed, managed)

    steps.start("two", **WAITS)
    steps.wait_printed("two", "which an earlier attempt created")
    kubectl(bed, "delete", "pod", "one", "-n", managed, "--force", "--grace-period=0")
    steps.wait_printed("two", "Queued: TooBig")
    (adopted,) = jobs(bed, managed)
    assert adopted["metadata"]["uid"] == job["metadata"]["uid"]

    kubectl(bed, "delete", "pod", "two", "-n", managed)
    until(lambda: not jobs(bed, managed), what="the job is gone with its step")


def test_a_retry_continues_the_job_of_an_evicted_step(
    bed: Testbed, managed: str, steps: Steps
) -> None:
    check_retry_adopts_job(bed, steps, jobs_path(managed, "PyTorchJob"), **WAITS)


def test_a_malformed_setting_fails_the_step_with_the_reason(
    bed: Testbed, managed: str, steps: Steps
) -> None:
    steps.start("one", command=TRAIN, settings={"colocation": "always"}, task_config=SMALL)
    assert steps.wait_ended("one") == "Failed"
    assert "kfext.dev/colocation" in steps.log("one")
    assert jobs(bed, managed) == []


def test_a_job_that_fails_fails_the_step_and_a_retry_replaces_it(
    bed: Testbed, managed: str, steps: Steps
) -> None:
    failing = ["python3", "-c", "raise SystemExit(1)"]
    steps.start("one", command=failing, backoff_limit=1, task_config=SMALL)
    assert steps.wait_ended("one") == "Failed"
    assert "the job failed" in steps.log("one")
    (first,) = jobs(bed, managed)

    steps.start("two", command=failing, backoff_limit=1, task_config=SMALL)
    assert steps.wait_ended("two") == "Failed"
    (second,) = jobs(bed, managed)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


@pytest.mark.long
def test_the_example_trains_with_kfp_local(bed: Testbed, managed: str, tmp_path: Path) -> None:
    """The author runs it with a kubeconfig; the output has the nodes and the metrics."""
    program, sdk = REPOSITORY / "examples/pipeline.py", f"kfp[kubernetes]=={VERSION}"
    output = run_as_author(bed, managed, program, sdk=sdk, folder=tmp_path)
    assert "Placed on " in output
    assert "'loss': " in output  # the metrics of the step
    assert len(jobs(bed, managed)) == 2
