"""Which pinned pods take something from their node before they are bound."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.core.ledger.pins import could_run, may_be_bound
from kfext.model.node import Node
from kfext.model.pod import Pod, parse_pod
from tests.builders import affinity_to, node


def pinned(cpu: str = "1", **spec: Any) -> Pod:
    """A pod of nobody that is pinned to node a."""
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    made = {"affinity": affinity_to("a"), "containers": containers, **spec}
    return parse_pod({"kind": "Pod", "spec": made})


A = node("a", cpu="4")
TAINTED = node("a", cpu="4", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
NEVER: dict[str, tuple[Pod, Node | None]] = {
    "larger than its node": (pinned("5"), A),
    "a device that its node has not": (pinned(overhead={"nvidia.com/gpu": "1"}), A),
    "a gate of another system": (pinned(schedulingGates=[{"name": "example.com/g"}]), A),
    "another scheduler": (pinned(schedulerName="volcano"), A),
    "a selector that its node does not match": (pinned(nodeSelector={"no": "where"}), A),
    "a taint that it does not tolerate": (pinned(), TAINTED),
    "a node that is cordoned": (pinned(), node("a", cpu="4", cordoned=True)),
    "a node that does not exist": (pinned(), None),
    "it is being deleted": (replace(pinned(), deleting=True), A),
}


@pytest.mark.parametrize(("of", "on"), NEVER.values(), ids=NEVER)
def test_a_pod_that_can_never_be_bound_takes_nothing(of: Pod, on: Node | None) -> None:
    assert not could_run(of, on)
    assert not may_be_bound(of, on)


def test_a_pod_that_fills_its_node_may_be_bound() -> None:
    tolerating = [{"key": "team", "operator": "Exists"}]
    assert may_be_bound(pinned("4"), A)
    assert may_be_bound(pinned("4", tolerations=tolerating), TAINTED)


def test_a_pod_that_kube_scheduler_refused_takes_nothing() -> None:
    assert not may_be_bound(replace(pinned(), unschedulable="0/1 nodes"), A)
