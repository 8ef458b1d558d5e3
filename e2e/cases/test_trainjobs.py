"""TrainJobs of Kubeflow Trainer 2: held, planned from the JobSet, gated, pinned, and complete.

kwok ends the pods of batch Jobs as soon as they run, so each job that starts is soon complete.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.harness.jobs import gated, pinned_to
from e2e.harness.kfext_process import Kfext
from e2e.harness.space import CASE, Space
from e2e.testbed import trainer
from e2e.testbed.cluster import Testbed
from e2e.testbed.preflight import Unavailable
from kfext import names

Object = dict[str, Any]
_POD_LABEL = "jobset.sigs.k8s.io/jobset-name"


@pytest.fixture(scope="module")
def with_trainer(testbed: Testbed, installed: Kfext) -> Iterator[None]:
    """Trainer and JobSet in the cluster, and a controller that has found their kinds."""
    try:
        for name in (trainer.JOBSET, trainer.TRAINER):
            testbed.binary(name)
    except Unavailable as error:
        pytest.skip(str(error))
    trainer.start(testbed)
    installed.stop_controller()
    installed.ensure()
    yield
    trainer.stop(testbed)


def train_job(space: Space, name: str, nodes: int, *, cpu: Any = "2", **annotations: str) -> Object:
    here = {"nodeSelector": {CASE: space.name}}
    pods = {"name": "node", "template": {"spec": {"template": {"spec": here}}}}
    template = {"template": {"spec": {"replicatedJobs": [pods]}}}
    patch = {"manager": "cases.kfext.dev/space", "trainingRuntimeSpec": template}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "runtimeRef": {"name": trainer.RUNTIME},
            "trainer": {"numNodes": nodes, "resourcesPerNode": {"requests": {"cpu": cpu}}},
            "runtimePatches": [patch],
        },
    }


def path(space: Space, name: str = "") -> str:
    root = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{space.name}/trainjobs"
    return f"{root}/{name}" if name else root


def submit(space: Space, body: Object) -> Object:
    stored: Object = space.kube.create(path(space), body)
    return stored


def pods(space: Space, job: str) -> list[Object]:
    selector = f"?labelSelector={_POD_LABEL}%3D{job}"
    return space.kube.items(f"/api/v1/namespaces/{space.name}/pods{selector}")


def is_complete(space: Space, name: str) -> bool:
    conditions = space.kube.get(path(space, name)).get("status", {}).get("conditions", [])
    return any(found["type"] == "Complete" and found["status"] == "True" for found in conditions)


@pytest.mark.usefixtures("with_trainer")
@pytest.mark.parametrize("cpu", ["2", 2, "2000m"], ids=repr)
def test_a_train_job_is_held_and_bound_to_one_node_as_planned(space: Space, cpu: Any) -> None:
    space.nodes(2, cpu="16", memory="64Gi")
    stored = submit(space, train_job(space, "one", 3, cpu=cpu))
    assert stored["spec"]["suspend"] is True
    assert names.HELD in stored["metadata"]["annotations"]
    space.until(lambda: is_complete(space, "one"), "the job is complete")
    found = pods(space, "one")
    homes = {pod["spec"]["nodeName"] for pod in found}
    assert (len(found), len(homes)) == (3, 1)
    assert all(pinned_to(pod) == [*homes] and not gated(pod) for pod in found)
    plan = space.kube.get(path(space, "one"))["metadata"]["annotations"][names.PLAN]
    assert next(iter(homes)) in plan


@pytest.mark.usefixtures("with_trainer")
def test_a_train_job_without_room_waits_suspended_and_starts_when_there_is_room(
    space: Space,
) -> None:
    space.nodes(1, cpu="3", memory="64Gi")
    submit(space, train_job(space, "waits", 2, **{names.COLOCATION: "required"}))
    space.until(
        lambda: space.view("waits", "TrainJob").get("reason") == "TooBig", "the job is too big"
    )
    assert pods(space, "waits") == []
    (big,) = space.nodes(1, cpu="16", memory="64Gi")
    space.until(lambda: is_complete(space, "waits"), "the job is complete")
    assert {pod["spec"]["nodeName"] for pod in pods(space, "waits")} == {big}


@pytest.mark.usefixtures("with_trainer")
def test_a_train_job_on_the_host_network_has_a_port_of_its_own(space: Space) -> None:
    space.nodes(1, cpu="8", memory="64Gi")
    submit(space, train_job(space, "host", 2, **{names.NETWORK: "host"}))
    space.until(lambda: is_complete(space, "host"), "the job is complete")
    first, second = sorted(pods(space, "host"), key=lambda pod: str(pod["metadata"]["name"]))
    assert first["spec"]["hostNetwork"]
    assert second["spec"]["hostNetwork"]
    (port,) = first["spec"]["containers"][0]["ports"]
    assert "ports" not in second["spec"]["containers"][0]
    for pod in (first, second):
        env = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}
        assert env["PET_MASTER_PORT"] == str(port["containerPort"])
