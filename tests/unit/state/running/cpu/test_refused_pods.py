"""Pods that kube-scheduler refused: which nodes give up boosts for them, and for how long."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.model.pod import Pod, parse_pod
from kfext.state.planner.planner import Planner
from kfext.state.running.cpu.refused_pods import REST_SECONDS, WAIT_SECONDS, RefusedPods
from tests.builders import affinity_to, node

REFUSED = "0/2 nodes are available: 2 Insufficient cpu."
FREE, BOOSTS = {"a": 1000, "b": 1000}, {"a": 900, "b": 900}


def refused_pod(
    name: str = "p", *, namespace: str = "other", cpu: str = "600m", **spec: Any
) -> Pod:
    """A pod of no job that kube-scheduler has refused."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, **spec.pop("more", {})}}}
    refused = {"type": "PodScheduled", "reason": "Unschedulable", "message": REFUSED}
    return parse_pod(
        {
            "metadata": {"namespace": namespace, "name": name, "uid": name},
            "spec": {"containers": [container], **spec},
            "status": {"phase": "Pending", "conditions": [refused]},
        }
    )


class TwoNodes:
    """Two nodes, each with 1000m free without boosts, and boosts of 900m."""

    def __init__(self, *pods: Pod) -> None:
        self.cluster = Planner().cluster
        self.refused = RefusedPods(self.cluster)
        for name in FREE:
            self.cluster.observe_node(None, node(name, cpu="1400m", memory="1Gi"))
        for pod in pods:
            self.cluster.observe_pod(None, pod)

    def awaited(self, now: float = 0.0, **boosts: int) -> list[str]:
        return sorted(self.refused.awaited(FREE, {**BOOSTS, **boosts}, now=now))


WANTS: dict[str, tuple[Pod, list[str]]] = {
    "first node with capacity but for its boosts": (refused_pod(), ["a"]),
    "node that it is pinned to": (refused_pod(affinity=affinity_to("b")), ["b"]),
    "no node, because it fits beside the boosts": (refused_pod(cpu="100m"), []),
    "no node, because it does not fit even without boosts": (refused_pod(cpu="1001m"), []),
    "no node with the label that it requires": (refused_pod(nodeSelector={"gpu": "yes"}), []),
    "no node with the memory that it requests": (refused_pod(more={"memory": "2Gi"}), []),
    "no node with the GPU that it requests": (refused_pod(more={"nvidia.com/gpu": "1"}), []),
}


@pytest.mark.parametrize(("pod", "want"), WANTS.values(), ids=WANTS)
def test_a_refused_pod_is_awaited_by_the(pod: Pod, want: list[str]) -> None:
    assert TwoNodes(pod).awaited() == want


def test_capacity_without_a_boost_stays_free_for_a_refused_pod() -> None:
    assert TwoNodes(refused_pod()).awaited(a=0) == ["a"]


def test_a_pod_that_is_not_bound_costs_each_node_its_boosts_for_1_minute_of_11() -> None:
    nodes, awaited = TwoNodes(refused_pod()), list[list[str]]()
    period = int(WAIT_SECONDS + REST_SECONDS)
    for now in range(0, 2 * period, 10):
        awaited.append(nodes.awaited(now))
    assert max(map(len, awaited)) == 1, "one node at a time"
    for name in FREE:
        assert sum(name in names for names in awaited) * 10 == 2 * WAIT_SECONDS


def test_pods_that_are_recreated_again_and_again_cost_no_more_than_a_single_pod() -> None:
    nodes, waits = TwoNodes(), 0
    for number in range(200):
        before = next(iter(nodes.cluster.claim_tracker.refused.values()), None)
        if before is not None:
            nodes.cluster.observe_pod(before, None)
        nodes.cluster.observe_pod(None, refused_pod(f"p{number}", affinity=affinity_to("a")))
        waits += bool(nodes.awaited(10 * number))
    assert waits * 10 <= 2000 / (WAIT_SECONDS + REST_SECONDS) * WAIT_SECONDS + WAIT_SECONDS


def test_a_pod_that_fits_nowhere_keeps_no_pod_of_a_different_namespace_waiting() -> None:
    nodes = TwoNodes(refused_pod(affinity=affinity_to("a")))
    nodes.awaited(0)
    assert nodes.awaited(WAIT_SECONDS) == []
    nodes.cluster.observe_pod(None, refused_pod("q", namespace="third", affinity=affinity_to("a")))
    assert nodes.awaited(WAIT_SECONDS + 10) == ["a"]


def test_a_node_with_a_newly_bound_pod_waits_for_the_next_pod_at_once() -> None:
    nodes, first = TwoNodes(refused_pod()), refused_pod()
    nodes.awaited(0)
    bound = replace(first, node_name="a", unschedulable="", resource_version="2")
    nodes.cluster.observe_pod(first, bound)
    assert nodes.awaited(50) == []
    nodes.cluster.observe_pod(None, refused_pod("q"))
    assert nodes.awaited(WAIT_SECONDS + 10) == ["a"]
