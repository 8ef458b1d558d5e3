"""A cluster need not serve every kind of job that kfext supports."""

from collections.abc import Iterator

import pytest

from e2e.harness.jobs import job, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.space import Space

TFJOBS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org"
CRDS = TFJOBS.rpartition("/")[0]


@pytest.fixture
def definition(kfext: Kfext) -> Iterator[Object]:
    """The CRD of TFJobs; it is restored after the case."""
    stored = kfext.kube.get(TFJOBS)
    crd = {"metadata": {"name": stored["metadata"]["name"]}, "spec": stored["spec"]}
    yield {"apiVersion": stored["apiVersion"], "kind": stored["kind"], **crd}
    if kfext.kube.find(TFJOBS) is None:
        kfext.kube.create(CRDS, crd)
    kfext.ensure()


@pytest.mark.long
def test_jobs_of_one_kind_are_placed_while_the_crd_of_another_is_missing(
    space: Space, kfext: Kfext, definition: Object
) -> None:
    tf_job = job("flow", {"Worker": 2}, kind="TFJob")
    space.nodes(1, cpu="32", memory="64Gi")
    with kfext.restarting():
        kfext.kube.delete(TFJOBS)
        first_pid = kfext.controller_pid
        space.patiently(lambda: kfext.controller_pid not in {None, first_pid}, seconds=150)
        space.submit(workers("torch", 3))
        space.patiently(lambda: space.view("torch").get("phase") == "Placed", seconds=60)
        space.patiently(kfext.controller.ready, seconds=60)  # it has discovered the kinds
        second_pid = kfext.controller_pid
        kfext.kube.create(CRDS, definition)
        space.patiently(lambda: kfext.controller_pid not in {None, second_pid}, seconds=150)
        space.patiently(lambda: space.try_submit(tf_job).ok, seconds=60)
        space.patiently(lambda: space.view("flow", "TFJob").get("phase") == "Placed", seconds=60)
