"""The queue orders namespaces by usage: which job is next, and that usage survives a crash."""

import json
from collections.abc import Callable, Iterator

import pytest

from e2e.cases.test_cli import kfext as command
from e2e.cases.test_queue import wait_message
from e2e.harness.jobs import Object, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.nodes import delete_and_wait, wait_received
from e2e.harness.space import CASE, Space
from kfext import names

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
POLICIES = "/apis/kfext.dev/v1alpha1/trainingpolicies"
RECORD = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/{names.USAGE_RECORD}"
_RECORD_SECONDS = 900.0


@pytest.fixture
def by_usage(kfext: Kfext) -> Iterator[None]:
    """A policy orders the queue of the cluster by usage; other parameters are the case's."""
    body = {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": "by-usage"},
        "spec": {"weight": -1000, "queue": {"fairness": "usage", "halfLife": "1h"}},
    }
    kfext.kube.create(POLICIES, body)
    wait_received(kfext, f"{POLICIES}/by-usage")
    yield
    delete_and_wait(kfext, f"{POLICIES}/by-usage")
    kfext.kube.delete(RECORD)


def gang(name: str, *, on: Space) -> Object:
    """Return a gang of four pods for the nodes of `on`; it may be submitted in any namespace."""
    return workers(name, 4, each=GPU, pod={"nodeSelector": {CASE: on.name}})


def set_weight(space: Space, weight: str) -> None:
    """Set the queue weight of a namespace; wait until the controller has received it."""
    path = f"/api/v1/namespaces/{space.name}"
    space.kube.patch(path, {"metadata": {"annotations": {names.QUEUE_WEIGHT: weight}}})
    wait_received(space.kfext, path)


@pytest.mark.usefixtures("by_usage")
def test_the_namespace_that_used_less_is_next_unless_its_weight_is_0(
    new_space: Callable[..., Space],
) -> None:
    busy, other = new_space(), new_space()
    busy.nodes(1, cpu="32", memory="64Gi", gpu="4")
    busy.submit(gang("runs", on=busy))
    busy.phase("runs", "Placed")
    busy.submit(gang("older", on=busy))
    busy.phase("older", "Queued")
    other.submit(gang("younger", on=busy))
    wait_message(other, "younger", "it is first in the queue")
    sentence = wait_message(busy, "older", "it is behind a namespace that used less")
    assert other.name not in sentence

    set_weight(other, "0")
    wait_message(busy, "older", "it is first in the queue")
    message = wait_message(other, "younger", "1 job is ahead in the queue")
    assert "its namespace has weight 0" in message
    set_weight(other, "1")
    wait_message(other, "younger", "it is first in the queue")
    busy.kube.delete(busy.path("pytorchjobs", "runs"))
    other.phase("younger", "Placed")
    assert busy.view("older")["phase"] == "Queued"


def test_a_policy_for_some_namespaces_must_not_set_fairness(space: Space) -> None:
    spec = {
        "namespaceSelector": {"matchLabels": {CASE: space.name}},
        "queue": {"fairness": "usage"},
    }
    body = {"apiVersion": "kfext.dev/v1alpha1", "kind": "TrainingPolicy", "spec": spec}
    answer = space.kube.ask("POST", POLICIES, {**body, "metadata": {"name": "some"}})
    assert answer.status == 422
    assert "fairness usage orders the whole cluster" in answer.message


@pytest.mark.long
@pytest.mark.usefixtures("by_usage")
def test_usage_survives_a_killed_controller_and_a_garbled_configmap(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(gang("runs", on=space))
    space.phase("runs", "Placed")
    space.patiently(lambda: space.kube.find(RECORD), seconds=_RECORD_SECONDS)
    before = usage_of(space)
    assert before["used"] > 0

    space.kfext.kill_controller()
    space.kfext.restart_killed_controller()
    space.kube.patch(RECORD, {"data": {"usage": "{"}})
    space.patiently(lambda: usage_of(space), seconds=_RECORD_SECONDS)
    assert usage_of(space)["used"] > before["used"]


def usage_of(space: Space) -> Object:
    """Return the row of a namespace in `kubectl kfext usage`; empty without a row."""
    answer = command(space, "usage", "-o", "json")
    lines = json.loads(answer.stdout)["namespaces"] if answer.returncode == 0 else []
    row: Object = next((line for line in lines if line["namespace"] == space.name), {})
    return row
