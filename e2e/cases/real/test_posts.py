"""A real container posts its progress with the callback of Hugging Face Transformers."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.posts import (
    STEPS,
    Program,
    packages_with_transformers,
    progress_message,
    route_posts,
)
from e2e.harness.training import pytorch_job, submit, wait_trained
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from kfext import names

pytestmark = pytest.mark.long
packages = pytest.fixture(scope="module")(packages_with_transformers)


def posting(name: str, packages: Path) -> Any:
    """Return a PyTorchJob with one pod, which trains with the callback and prints nothing."""
    job, program = pytorch_job(name), Program(packages)
    job.metadata.annotations = {names.METRICS: "push"}
    del job.spec.pytorch_replica_specs["Worker"]
    spec = job.spec.pytorch_replica_specs["Master"].template.spec
    (container,) = spec.containers
    container.command, container.env = program.command, program.env
    container.volume_mounts, spec.volumes = program.mounts, program.volumes
    return job


def test_a_training_that_cannot_reach_the_endpoint_does_not_wait_for_it(
    bed: Testbed, managed: str, packages: Path
) -> None:
    job = posting("alone", packages)
    wait_trained(submit(bed, job, managed), job, managed)
    assert "posts" not in progress_message(bed, "pytorchjob-alone", managed)


def test_an_unchanged_training_with_transformers_posts_its_progress(
    bed: Testbed, managed: str, packages: Path
) -> None:
    with route_posts(bed):
        job = posting("posts", packages)
        sdk = submit(bed, job, managed)
        source = partial(progress_message, bed, "pytorchjob-posts", managed)
        until(lambda: source() == "the job posts loss", what="posts count", seconds=180.0)
        wait_trained(sdk, job, managed)
        path = f"/apis/kfext.dev/v1alpha1/namespaces/{managed}/trainingplans/pytorchjob-posts"
        last = until(
            lambda: (bed.api.get(path)["status"].get("progress") or {}).get("step") == STEPS,
            what="the last step is shown",
        )
        assert last
