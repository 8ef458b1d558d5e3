"""The capacity of a plan is taken, or its node is lost, before the gang exists."""

import re

from e2e.harness import nodes
from e2e.harness.jobs import conditions, suspended, workers
from e2e.harness.pods import FOREIGN_GATE, remove_foreign_gate
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def test_room_stolen_before_the_barrier_sends_the_whole_gang_elsewhere(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    (node,) = space.phase("gang", "Gated")["nodes"]
    space.thief("thief", node, 2)
    remove_foreign_gate(space, "gang")
    homes = space.bound("gang", 4)
    assert len(set(homes.values())) == 1
    assert node not in homes.values()
    assert space.pins() == dict.fromkeys(homes, 1)
    assert space.plan("gang")["generation"] == 2  # type: ignore[index]
    assert space.starts() == 1


def test_room_stolen_for_good_suspends_the_gang_until_it_is_free_again(space: Space) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    space.phase("gang", "Gated")
    space.thief("thief", node, 2)
    remove_foreign_gate(space, "gang")
    view = space.phase("gang", "Queued")
    assert suspended(space.job("gang"))
    assert view["nodes"] == []
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")
    space.kube.delete(space.path("pods", "thief"), grace=0)
    space.phase("gang", "Gated")  # resumed, and its new pods wait for the other system again
    remove_foreign_gate(space, "gang")
    assert set(space.bound("gang", 4).values()) == {node}
    assert "Failed" not in conditions(space.job("gang"))
    assert space.starts() == 2


def test_a_suspended_gang_is_not_resumed_while_its_old_pods_still_end(space: Space) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 3, each=GPU, pod=FOREIGN_GATE))
    space.phase("gang", "Gated")
    finalizer = {"metadata": {"finalizers": ["example.com/slow"]}}
    slow = [pod["metadata"]["name"] for pod in space.pods("gang")]
    for name in slow:
        space.kube.patch(space.path("pods", name), finalizer)
    space.thief("thief", node, 2)
    remove_foreign_gate(space, "gang")
    space.until(lambda: suspended(space.job("gang")), "the gang is suspended again")
    space.kube.delete(space.path("pods", "thief"), grace=0)  # there is capacity from now on
    view = space.until(
        lambda: (v := space.view("gang")).get("reason") == "WaitingForSuspend" and v,
        "kfext shows the reason of the wait",
    )
    assert "3 pods of the last start are still terminating" in view["message"]
    # Another job is placed meanwhile; this one stays suspended.
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


def test_a_node_deleted_while_its_gang_is_gated_is_replaced_by_another(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    (node,) = space.phase("gang", "Gated")["nodes"]
    space.lose_node(node)
    remove_foreign_gate(space, "gang")
    homes = space.bound("gang", 4)
    assert len(set(homes.values())) == 1
    assert node not in homes.values()
    assert space.pins() == dict.fromkeys(homes, 1)


def test_a_node_cordoned_while_its_gang_is_gated_is_replaced_by_another(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    (node,) = space.phase("gang", "Gated")["nodes"]
    nodes.cordon(space.kfext, node)
    remove_foreign_gate(space, "gang")
    assert node not in space.bound("gang", 4).values()


def test_a_gang_moves_in_time_if_its_room_is_stolen_between_pin_and_bind(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.policy(placement={"bindTimeout": "5s"})
    pins, node = space.submit_with_pins_held(workers("gang", 4, each=GPU), 4)
    space.thief("thief", node, 4)
    pins.go.set()
    homes = space.until(
        lambda: (h := space.homes("gang")) and len(h) == 4 and all(h.values()) and h,
        "the gang is bound",
    )
    assert len(set(homes.values())) == 1
    assert node not in homes.values()
    notes = [event["note"] for event in space.events("gang") if event["reason"] == "BindTimeout"]
    assert any("kube-scheduler reports" in note for note in notes)


def test_capacity_taken_between_pin_and_bind_leaves_no_gang_in_part(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    pins, node = space.submit_with_pins_held(workers("gang", 4, each=GPU), 4)
    space.thief("thief", node, 2)
    pins.go.set()
    view = space.phase("gang", "Queued")
    # The second pod may be bound just after the decision.
    assert re.search("[12] of 4 pods were bound, and the others have no node", view["message"])
    space.until(lambda: not space.pods("gang", ending=True), "no member is left on the node")
    assert suspended(space.job("gang"))
    space.kube.delete(space.path("pods", "thief"), grace=0)
    assert set(space.bound("gang", 4).values()) == {node}
    space.phase("gang", "Placed")
    assert "Failed" not in conditions(space.job("gang"))
    assert space.starts() == 2


def test_a_member_lost_while_its_node_is_cordoned_comes_back_when_the_node_does(
    space: Space,
) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU))
    space.bound("gang", 4)
    space.phase("gang", "Placed")
    nodes.cordon(space.kfext, node)
    space.kube.delete(space.path("pods", "gang-worker-1"), grace=0)
    space.phase("gang", "Gated")
    assert len(space.pods("gang")) == 4  # the others run on
    nodes.cordon(space.kfext, node, shut=False)
    assert set(space.bound("gang", 4).values()) == {node}
