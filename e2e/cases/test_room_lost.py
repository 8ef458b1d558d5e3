"""Another pod uses the planned capacity, or the planned node is lost, before a gang is bound."""

import re

from e2e.harness import nodes
from e2e.harness.jobs import conditions, suspended, workers
from e2e.harness.pods import FOREIGN_GATE, remove_foreign_gate
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def test_a_gated_gang_is_planned_elsewhere_if_its_capacity_is_used(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    (node,) = space.phase("gang", "Gated")["nodes"]
    space.take_gpus("thief", node, 2)
    remove_foreign_gate(space, "gang")
    nodes_by_pod = space.bound("gang", 4)
    assert len(set(nodes_by_pod.values())) == 1
    assert node not in nodes_by_pod.values()
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    assert space.plan("gang")["generation"] == 2  # type: ignore[index]
    assert space.starts() == 1


def test_a_gated_gang_is_suspended_until_its_capacity_is_free_again(space: Space) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    space.phase("gang", "Gated")
    space.take_gpus("thief", node, 2)
    remove_foreign_gate(space, "gang")
    view = space.phase("gang", "Queued")
    assert suspended(space.job("gang"))
    assert view["nodes"] == []
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")
    space.kube.delete(space.path("pods", "thief"), grace=0)
    space.phase("gang", "Gated")  # resumed; its new pods have the foreign gate again
    remove_foreign_gate(space, "gang")
    assert set(space.bound("gang", 4).values()) == {node}
    assert "Failed" not in conditions(space.job("gang"))
    assert space.starts() == 2


def test_a_suspended_gang_is_not_resumed_while_its_old_pods_terminate(space: Space) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 3, each=GPU, pod=FOREIGN_GATE))
    space.phase("gang", "Gated")
    finalizer = {"metadata": {"finalizers": ["example.com/slow"]}}
    slow = [pod["metadata"]["name"] for pod in space.pods("gang")]
    for name in slow:
        space.kube.patch(space.path("pods", name), finalizer)
    space.take_gpus("thief", node, 2)
    remove_foreign_gate(space, "gang")
    space.until(lambda: suspended(space.job("gang")), "the gang is suspended again")
    space.kube.delete(space.path("pods", "thief"), grace=0)  # there is capacity from now on
    view = space.until(
        lambda: (v := space.view("gang")).get("reason") == "WaitingForSuspend" and v,
        "kfext shows why the gang waits",
    )
    assert "3 pods of the last start are still terminating" in view["message"]
    # kfext places another job, but this gang stays suspended.
    space.submit(workers("quick", 1, each=GPU))
    space.phase("quick", "Placed")
    assert suspended(space.job("gang"))
    space.kube.delete(space.path("pytorchjobs", "quick"))
    for name in slow:
        space.kube.patch(space.path("pods", name), {"metadata": {"finalizers": None}})
    space.until(lambda: not suspended(space.job("gang")), "the gang is resumed")
    space.until(lambda: len(space.pods("gang")) == 3, "its new pods exist")
    remove_foreign_gate(space, "gang")
    space.bound("gang", 3)
    assert "Failed" not in conditions(space.job("gang"))


def test_a_gated_gang_uses_another_node_if_its_node_is_deleted(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    (node,) = space.phase("gang", "Gated")["nodes"]
    space.lose_node(node)
    remove_foreign_gate(space, "gang")
    nodes_by_pod = space.bound("gang", 4)
    assert len(set(nodes_by_pod.values())) == 1
    assert node not in nodes_by_pod.values()
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)


def test_a_gated_gang_uses_another_node_if_its_node_is_cordoned(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    (node,) = space.phase("gang", "Gated")["nodes"]
    nodes.cordon(space.kfext, node)
    remove_foreign_gate(space, "gang")
    assert node not in space.bound("gang", 4).values()


def test_a_pinned_gang_is_replaced_on_another_node_if_its_capacity_is_used(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.policy(placement={"bindTimeout": "5s"})
    pins, node = space.submit_with_pins_held(workers("gang", 4, each=GPU), 4)
    space.take_gpus("thief", node, 4)
    pins.go.set()
    nodes_by_pod = space.until(
        lambda: (h := space.nodes_by_pod("gang")) and len(h) == 4 and all(h.values()) and h,
        "the gang is bound",
    )
    assert len(set(nodes_by_pod.values())) == 1
    assert node not in nodes_by_pod.values()
    notes = [event["note"] for event in space.events("gang") if event["reason"] == "BindTimeout"]
    assert any("kube-scheduler reports" in note for note in notes)


def test_a_pinned_gang_is_stopped_if_only_some_of_its_pods_can_be_bound(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    pins, node = space.submit_with_pins_held(workers("gang", 4, each=GPU), 4)
    space.take_gpus("thief", node, 2)
    pins.go.set()
    view = space.phase("gang", "Queued")
    # A second pod may be bound just after the decision.
    assert re.search("[12] of 4 pods were bound, and the others have no node", view["message"])
    space.until(lambda: not space.pods("gang", ending=True), "no member is left on the node")
    assert suspended(space.job("gang"))
    space.kube.delete(space.path("pods", "thief"), grace=0)
    assert set(space.bound("gang", 4).values()) == {node}
    space.phase("gang", "Placed")
    assert "Failed" not in conditions(space.job("gang"))
    assert space.starts() == 2


def test_a_lost_member_is_bound_again_once_its_node_is_uncordoned(
    space: Space,
) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU))
    space.bound("gang", 4)
    space.phase("gang", "Placed")
    nodes.cordon(space.kfext, node)
    space.kube.delete(space.path("pods", "gang-worker-1"), grace=0)
    space.phase("gang", "Gated")
    assert len(space.pods("gang")) == 4  # the others keep running
    nodes.cordon(space.kfext, node, shut=False)
    assert set(space.bound("gang", 4).values()) == {node}
