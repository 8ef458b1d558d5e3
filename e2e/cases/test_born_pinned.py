"""Gangs with pods that are born pinned: no gate, no patch of a pod, no half gang."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from e2e.harness import nodes
from e2e.harness.jobs import gated, job, pinned_to, ports, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.pods import occupy
from e2e.harness.space import Space
from e2e.harness.wait import until
from e2e.testbed import training_operator
from kfext import names

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
PODS = 4
LATE = ("gang-worker-1", "gang-worker-2")


@pytest.fixture
def space(new_space: Callable[..., Space]) -> Space:
    space = new_space(born_pinned=True)
    space.nodes(2, cpu="32", memory="64Gi", gpu="8")
    return space


def is_being_created(space: Space) -> bool:
    return names.PLACES in json.dumps(space.job("gang")["spec"])


def half_created(space: Space, *, create_timeout: str = "10m") -> Callable[[], None]:
    """Run two of four pods of a gang; return a function that lets the others be created."""
    space.policy(placement={"createTimeout": create_timeout})
    paths = [space.path("pods", name) for name in LATE]
    for path in paths:
        occupy(space, path)
    space.submit(workers("gang", PODS, each=GPU))
    space.until(
        lambda: sum(map(bool, space.nodes_by_pod("gang").values())) == 2, "half of the pods run"
    )
    assert is_being_created(space)

    def create_rest() -> None:
        for path in paths:
            space.kube.delete(path, grace=0)
        space.patch_job("gang", {"metadata": {"labels": {"seen": "again"}}})

    return create_rest


def wait_whole(space: Space) -> str:
    """Wait until all pods run on one node and later pods would be gated; return the node."""
    (home,) = set(space.bound("gang", PODS).values())
    space.phase("gang", "Placed")
    space.until(lambda: not is_being_created(space), "later pods would be gated")
    return home


def gate_warnings(space: Space) -> list[str]:
    """Return the operator's warnings about gated pods."""
    path = f"/api/v1/namespaces/{space.name}/events"
    notes = [event["message"] for event in space.kube.items(path) if event["type"] == "Warning"]
    return [note for note in notes if "blocked" in note]


def test_no_pod_is_gated_or_patched_and_the_operator_does_not_complain(space: Space) -> None:
    space.submit(workers("gang", PODS, each=GPU))
    home = wait_whole(space)
    assert all(pinned_to(pod) == [home] and not gated(pod) for pod in space.pods("gang"))
    assert space.pins() == {}
    assert space.starts() == 1
    assert gate_warnings(space) == []


def test_pods_of_a_tfjob_are_born_pinned_with_distinct_host_ports(space: Space) -> None:
    replicas = {"PS": 1, "Worker": 2}
    settings = {names.NETWORK: "host"}
    space.submit(job("gang", replicas, kind="TFJob", each=GPU, annotations=settings))
    (home,) = set(space.bound("gang", 3).values())
    space.phase("gang", "Placed", "TFJob")
    pods = space.pods("gang")
    assert all(pinned_to(pod) == [home] and pod["spec"]["hostNetwork"] for pod in pods)
    numbers = [port for pod in pods for port in ports(pod)]
    assert len(set(numbers)) == len(numbers)
    assert space.pins() == {}


def test_running_members_are_stopped_if_another_is_not_created_in_time(space: Space) -> None:
    half_created(space, create_timeout="2s")
    space.until(lambda: suspended(space.job("gang")), "the gang is suspended with running members")
    space.until(
        lambda: "no pod was created" in str(space.view("gang")), "kfext shows why it stopped"
    )
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")
    assert not is_being_created(space)


def test_members_are_stopped_and_start_again_as_a_whole_after_the_operator_was_down(
    space: Space, kfext: Kfext
) -> None:
    create_rest = half_created(space, create_timeout="2s")
    kfext.testbed.stop_process("training-operator")
    try:
        space.until(lambda: suspended(space.job("gang")), "the gang is suspended")
        create_rest()
    finally:
        kfext.testbed.restart_process("training-operator")
        training_operator.wait_ready(kfext.testbed)
    wait_whole(space)
    assert sorted(space.pins().values()) == [1] * PODS  # after a failure its pods are gated


def test_a_successor_of_the_controller_knows_that_the_gang_is_being_created(
    space: Space, kfext: Kfext
) -> None:
    create_rest = half_created(space)
    kfext.kill_controller()
    kfext.wait_controller_dead()
    kfext.ensure()
    create_rest()
    wait_whole(space)
    assert space.pins() == {}
    assert space.starts() == 1


def test_a_gang_that_must_leave_its_node_while_it_is_created_moves_as_a_whole(
    space: Space,
) -> None:
    create_rest = half_created(space)
    space.policy(placement={"bindTimeout": "2s"})
    home = next(filter(None, space.nodes_by_pod("gang").values()))
    nodes.taint(space.kfext, home, "NoExecute")
    create_rest()
    space.until(
        lambda: home not in space.nodes_by_pod("gang").values(), "all pods have left the node"
    )
    assert wait_whole(space) != home


def test_pods_that_are_replaced_later_wait_at_the_gate(space: Space) -> None:
    space.submit(workers("gang", PODS, each=GPU))
    home = wait_whole(space)
    nodes.taint(space.kfext, home, "NoExecute")
    space.until(
        lambda: home not in space.nodes_by_pod("gang").values(), "all pods have left the node"
    )
    assert wait_whole(space) != home
    assert sorted(space.pins().values()) == [1] * PODS


def test_pods_that_the_webhook_missed_run_beside_pods_that_were_born_pinned(
    space: Space, kfext: Kfext
) -> None:
    create_rest = half_created(space)
    kfext.configure_webhooks(unreachable=("pods.kfext.dev",))
    kfext.wait_webhooks(job="held", pod="untouched")
    create_rest()
    space.bound("gang", PODS)
    space.phase("gang", "Placed")
    assert space.starts() == 1


def test_a_gang_that_its_user_suspends_and_resumes_while_it_is_created_is_placed_as_a_whole(
    space: Space,
) -> None:
    create_rest = half_created(space)
    space.patch_job("gang", {"spec": {"runPolicy": {"suspend": True}}})
    space.until(lambda: not is_being_created(space), "its places are removed")
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")
    create_rest()
    space.patch_job("gang", {"spec": {"runPolicy": {"suspend": False}}})
    wait_whole(space)


def test_a_worker_that_comes_later_waits_at_the_gate(space: Space) -> None:
    body = job("gang", {"PS": 1, "Worker": 2}, kind="TFJob", each=GPU)
    body["spec"]["enableDynamicWorker"] = True
    space.submit(body)
    space.bound("gang", 3)
    space.phase("gang", "Placed", "TFJob")
    more: Object = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}}
    space.patch_job("gang", more, "TFJob")
    space.bound("gang", 4)
    assert space.pins() == {"gang-worker-2": 1}
    space.patch_job("gang", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}}, "TFJob")
    space.bound("gang", 3)


def test_a_gang_is_gated_while_another_pod_may_be_bound_to_any_node(
    space: Space, kfext: Kfext
) -> None:
    """The other pod waits for a scheduler that does not run."""
    spec = {"schedulerName": "absent", "containers": [{"name": "main", "image": "none"}]}
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}}
    space.kube.create(space.path("pods"), {**body, "spec": spec})
    until(lambda: space.kube.find(space.path("pods", "other")), what="the pod exists")
    space.submit(workers("gang", PODS, each=GPU))
    wait_whole(space)
    assert sorted(space.pins().values()) == [1] * PODS
