"""A node is lost in any phase of a gang: deleted, tainted, shrunk, or not ready for a while."""

from collections.abc import Callable

import pytest

from e2e.harness import nodes
from e2e.harness.faults import Exchange
from e2e.harness.jobs import conditions, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.pods import FOREIGN_GATE, remove_foreign_gate, uids
from e2e.harness.space import CASE, Space
from kfext import names

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
Loss = Callable[[Space, str], None]


def deleted(space: Space, node: str) -> None:
    space.lose_node(node)


def tainted_no_execute(space: Space, node: str) -> None:
    nodes.taint(space.kfext, node, "NoExecute")


def tainted_no_schedule(space: Space, node: str) -> None:
    nodes.taint(space.kfext, node, "NoSchedule")


def shrunk(space: Space, node: str) -> None:
    nodes.shrink(space.kfext, node, 3)


def no_longer_labelled(space: Space, node: str) -> None:
    nodes.label(space.kfext, node, {CASE: None})


def quiet(space: Space, node: str) -> None:
    nodes.stop_reports(space.kfext, node)


def ids_of(losses: list[Loss]) -> list[str]:
    return [loss.__name__.replace("_", " ") for loss in losses]


WHILE_GATED: list[Loss] = [
    tainted_no_execute,
    tainted_no_schedule,
    shrunk,
    no_longer_labelled,
    quiet,
]


@pytest.mark.parametrize("lose", WHILE_GATED, ids=ids_of(WHILE_GATED))
def test_a_gated_gang_is_planned_as_a_whole_onto_another_node(space: Space, lose: Loss) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    (node,) = space.phase("gang", "Gated")["nodes"]
    lose(space, node)
    remove_foreign_gate(space, "gang")
    nodes_by_pod = space.bound("gang", 4)
    assert len(set(nodes_by_pod.values())) == 1
    assert node not in nodes_by_pod.values()
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    assert space.starts() == 1


PINNED: list[Loss] = [deleted, tainted_no_execute]


@pytest.mark.parametrize("lose", PINNED, ids=ids_of(PINNED))
def test_pods_pinned_to_a_lost_node_are_replaced_on_another(space: Space, lose: Loss) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.policy(placement={"bindTimeout": "5s"})
    pins, node = space.submit_with_pins_held(workers("gang", 4, each=GPU), 4)
    first = uids(space, "gang")
    lose(space, node)
    pins.go.set()
    space.until(lambda: len(_new(space, first)) == 4, "new pods have replaced them")
    nodes_by_pod = space.bound("gang", 4)
    assert len(set(nodes_by_pod.values())) == 1
    assert node not in nodes_by_pod.values()
    assert space.starts() == 1
    assert any(e["reason"] == "BindTimeout" for e in space.events("gang"))


def _new(space: Space, first: dict[str, str]) -> list[str]:
    return [name for name, uid in uids(space, "gang").items() if uid != first.get(name)]


RUNNING = [
    pytest.param(tainted_no_execute, id="tainted no execute"),
    # The pod garbage collector runs every 20 s, and waits 40 s for the node.
    pytest.param(deleted, id="deleted", marks=pytest.mark.long),
]


@pytest.mark.parametrize("lose", RUNNING)
def test_a_gang_that_loses_its_node_runs_again_on_another(space: Space, lose: Loss) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU))
    first = space.bound("gang", 4)
    space.phase("gang", "Placed")
    (node,) = set(first.values())
    lose(space, node)
    space.patiently(lambda: _all_moved_off(space, node), seconds=180)
    nodes_by_pod = space.bound("gang", 4)
    assert len(set(nodes_by_pod.values())) == 1
    space.until(
        lambda: (
            (view := space.view("gang")).get("phase") == "Placed"
            and view["nodes"] == sorted(set(nodes_by_pod.values()))
        ),
        "its TrainingPlan shows its new nodes",
    )
    assert space.pins() == dict.fromkeys(nodes_by_pod, 2)  # the first pods and their replacements
    assert space.starts() == 1
    assert "Failed" not in conditions(space.job("gang"))


def _all_moved_off(space: Space, node: str) -> bool:
    used_nodes = space.nodes_by_pod("gang").values()
    return len(used_nodes) == 4 and all(used_nodes) and node not in used_nodes


def test_members_lost_with_a_node_are_replaced_beside_the_running_members(space: Space) -> None:
    (tight,) = space.nodes(1, cpu="32", memory="64Gi", gpu="2")
    nodes.cordon(space.kfext, tight)
    roomy, dying = space.nodes(2, cpu="32", memory="64Gi", gpu="8")
    space.take_gpus("early", roomy, 5)
    space.take_gpus("late", dying, 6)
    space.submit(workers("gang", 5, each=GPU))
    first = space.bound("gang", 5)
    space.phase("gang", "Placed")
    assert sorted(first.values()) == sorted([roomy] * 3 + [dying] * 2)
    space.kube.delete(space.path("pods", "early"), grace=0)
    survivors = {name: uids(space, "gang")[name] for name in first if first[name] == roomy}
    # Two pods would fill this node, which kfext would prefer for a gang without running members.
    nodes.cordon(space.kfext, tight, shut=False)
    nodes.taint(space.kfext, dying, "NoExecute")
    space.until(lambda: dying not in space.nodes_by_pod("gang").values(), "its pods are gone")
    assert set(space.bound("gang", 5).values()) == {roomy}
    after = uids(space, "gang")
    assert {name: after[name] for name in survivors} == survivors
    assert space.starts() == 1


def test_a_node_that_is_not_ready_for_a_while_does_not_change_a_running_gang(
    space: Space, kfext: Kfext
) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    # Otherwise its TrainingPlan would at some time show that its log cannot be read.
    space.submit(workers("gang", 3, each=GPU, annotations={names.METRICS: "off"}))
    before = space.bound("gang", 3)
    space.phase("gang", "Placed")
    (node,) = set(before.values())
    known = uids(space, "gang")

    def writes() -> list[Exchange]:
        in_space = f"/{space.name}/"
        return kfext.proxy.writes(lambda write: in_space in write.path and "gang" in write.path)

    writes_before = writes()
    nodes.stop_reports(space.kfext, node)
    # A gang that is placed in this time avoids the node.
    space.submit(workers("other", 4, each=GPU))
    assert node not in space.bound("other", 4).values()
    space.phase("other", "Placed")
    space.submit(workers("late", 2, each=GPU))
    space.phase("late", "Queued")
    assert writes() == writes_before
    assert (space.nodes_by_pod("gang"), uids(space, "gang")) == (before, known)
    nodes.resume_reports(space.kfext, node)
    # The pods on the node still count: one GPU is free, two are requested.
    space.submit(workers("small", 1, each=GPU))
    assert set(space.bound("small", 1).values()) == {node}
    assert space.phase("late", "Queued")["reason"] == "NoRoom"
