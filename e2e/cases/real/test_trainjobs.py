"""TrainJobs of Kubeflow Trainer train on real nodes: from files, SDKs and pipelines."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from e2e.harness.install import kubectl
from e2e.harness.jobs import jobs_path
from e2e.harness.posts import (
    STEPS,
    Program,
    packages_with_transformers,
    progress_message,
    route_posts,
)
from e2e.harness.standing import trainer_or_skipped
from e2e.harness.steps import (
    Steps,
    check_retry_adopts_job,
    packages_of_steps,
    run_as_author,
)
from e2e.harness.training import wait_succeeded
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.trainer import RUNTIME
from kfext import names

pytestmark = pytest.mark.long
SDK = "kubeflow==0.5.0"
_FOUND_SECONDS = 180.0
EXAMPLE = REPOSITORY / "examples/trainjob.yaml"


@pytest.fixture(scope="module")
def trainers(bed: Testbed) -> Iterator[None]:
    """Trainer and JobSet run in the cluster, and the controller has discovered their kinds."""
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.LEASE}"
    with trainer_or_skipped(bed):
        until(
            lambda: "TrainJob" in bed.api.get(lease)["metadata"]["annotations"][names.KINDS],
            what="the Lease names the kind TrainJob",
            seconds=_FOUND_SECONDS,
        )
        yield


packages = pytest.fixture(scope="module")(packages_with_transformers)
step_packages = pytest.fixture(scope="module")(packages_of_steps)


@pytest.mark.usefixtures("trainers")
@pytest.mark.parametrize("network", ["pod", "host"])
def test_the_example_trains_on_one_node(bed: Testbed, managed: str, network: str) -> None:
    job = yaml.safe_load(EXAMPLE.read_text())
    job["metadata"]["annotations"][names.NETWORK] = network
    kubectl(bed, "apply", "-n", managed, "-f", "-", given=yaml.safe_dump(job))

    pods = wait_succeeded(bed, managed, "TrainJob", "ddp")

    assert len(pods) == 2
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    assert {pod["spec"].get("hostNetwork", False) for pod in pods} == {network == "host"}


@pytest.mark.usefixtures("trainers")
def test_a_job_of_trainers_sdk_trains_where_its_setting_says(
    bed: Testbed, managed: str, tmp_path: Path
) -> None:
    program = REPOSITORY / "examples/trainjob_sdk.py"
    run_as_author(bed, managed, program, sdk=SDK, folder=tmp_path)
    pods = wait_succeeded(bed, managed, "TrainJob", "ddp-sdk")
    (node,) = {pod["spec"]["nodeName"] for pod in pods}
    plan = f"/apis/kfext.dev/v1alpha1/namespaces/{managed}/trainingplans/trainjob-ddp-sdk"
    assert bed.api.get(plan)["status"]["nodes"] == [node]


@pytest.mark.usefixtures("trainers")
def test_a_step_of_a_pipeline_trains_in_a_trainjob(
    bed: Testbed, managed: str, step_packages: Path
) -> None:
    trainer = yaml.safe_load(EXAMPLE.read_text())["spec"]["trainer"]
    steps = Steps(bed, managed, step_packages)
    steps.start(
        "one",
        kind="TrainJob",
        runtime=RUNTIME,
        command=trainer["command"],
        replicas=trainer["numNodes"],
        settings={"colocation": "required"},
        task_config={"resources": trainer["resourcesPerNode"]},
    )
    assert steps.wait_ended("one") == "Succeeded"
    (job,) = bed.api.get(jobs_path(managed, "TrainJob"))["items"]
    pods = wait_succeeded(bed, managed, "TrainJob", job["metadata"]["name"])
    (node,) = {pod["spec"]["nodeName"] for pod in pods}
    assert f"Placed on {node}" in steps.log("one")


@pytest.mark.usefixtures("trainers")
def test_a_retry_continues_the_trainjob_of_an_evicted_step(
    bed: Testbed, managed: str, step_packages: Path
) -> None:
    steps, jobs = Steps(bed, managed, step_packages), jobs_path(managed, "TrainJob")
    inputs = {"kind": "TrainJob", "runtime": RUNTIME, "settings": {"colocation": "required"}}
    size = {"task_config": {"resources": {"limits": {"cpu": "64"}}}}
    check_retry_adopts_job(bed, steps, jobs, command=["true"], **inputs, **size)


@pytest.mark.usefixtures("trainers")
def test_an_unchanged_training_with_transformers_posts_its_progress(
    bed: Testbed, managed: str, packages: Path
) -> None:
    job = yaml.safe_load(EXAMPLE.read_text())
    job["metadata"]["annotations"] = {names.METRICS: "push"}
    program = Program(packages)
    job["spec"]["trainer"] |= {"numNodes": 1, "command": program.command, "env": program.env}
    node = {"name": "node", "volumeMounts": program.mounts}
    pods = {"spec": {"template": {"spec": {"volumes": program.volumes, "containers": [node]}}}}
    spec = {"replicatedJobs": [{"name": "node", "template": pods}]}
    entry = {
        "manager": "cases.kfext.dev/posts",
        "trainingRuntimeSpec": {"template": {"spec": spec}},
    }
    job["spec"]["runtimePatches"] = [entry]
    with route_posts(bed):
        kubectl(bed, "apply", "-n", managed, "-f", "-", given=yaml.safe_dump(job))

        source = partial(progress_message, bed, "trainjob-ddp", managed)
        until(lambda: source() == "the job posts loss", what="posts count", seconds=180.0)
        wait_succeeded(bed, managed, "TrainJob", "ddp")

        plan = f"/apis/kfext.dev/v1alpha1/namespaces/{managed}/trainingplans/trainjob-ddp"
        until(
            lambda: (bed.api.get(plan)["status"].get("progress") or {}).get("step") == STEPS,
            what="the last step is shown",
        )
