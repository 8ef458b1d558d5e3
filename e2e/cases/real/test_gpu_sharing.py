"""Real jobs share cards that a node's CPU plays: reservation, parts, gates, all through kubelet."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.gpu.node_cards import uuids
from e2e.harness.gpu import (
    counted,
    dialled,
    install_sharing,
    play_cards,
    reservations,
    slots,
    uninstall_sharing,
)
from e2e.harness.install import install_kfext
from e2e.harness.training import TRAINED_SECONDS, pods_of
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node, nodes
from kfext import names

CARDS = 2
LOW_STEPS, HIGH_STEPS = 200, 200
Object = dict[str, Any]


@pytest.fixture(scope="module")
def node(bed: Testbed) -> Iterator[Node]:
    """A node with cards, on which kfext shares them."""
    first, _ = nodes(bed)
    play_cards(first, CARDS)
    install_sharing(bed, first)
    yield first
    uninstall_sharing(bed)
    bed.stop_process(first.sandbox.process("cards"))
    install_kfext(bed)


def submit(bed: Testbed, namespace: str, job: Object) -> None:
    bed.api.create(f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs", job)


def running(bed: Testbed, namespace: str, name: str) -> Object:
    """Wait until the pod of a job runs."""

    def found() -> Object | None:
        pods = pods_of(bed, namespace, name).values()
        return next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)

    return until(found, what=f"{name} runs", account=lambda: said(bed, namespace), seconds=180)


def ended(bed: Testbed, namespace: str, name: str) -> None:
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/{name}"

    def succeeded() -> bool:
        conditions = bed.api.get(path).get("status", {}).get("conditions", [])
        return any(one["type"] == "Succeeded" and one["status"] == "True" for one in conditions)

    until(
        succeeded,
        what=f"{name} ends",
        account=lambda: said(bed, namespace),
        seconds=TRAINED_SECONDS,
    )


def said(bed: Testbed, namespace: str) -> str:
    """What kfext shows of the jobs of a namespace."""
    plans = bed.api.get(f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans")["items"]
    return "\n".join(str(plan.get("status", {}).get("message")) for plan in plans)


def unreserved(bed: Testbed) -> None:
    until(lambda: not reservations(bed), what="all cards are given back")


def beside(node: Node, uuid: str, name: str) -> float:
    """Return the part of its kernels that a job began while another had work on the card."""
    client = counted(node, uuid)[name]
    return float(client["beside"]) / int(client["kernels"])


def share_one_card(
    bed: Testbed, node: Node, namespace: str, *, isolation: str = "auto"
) -> tuple[Object, str]:
    """Have two jobs train on one card until they end; return the SharedGPU while both ran."""
    gate = {"isolation": isolation}
    first = {"share": "0.5", "priority": "high", **gate}
    second = {"share": "0.3", "min_share": "0", **gate}
    high = dialled("high", first, load_ms=60, steps=HIGH_STEPS)
    low = dialled("low", second, steps=LOW_STEPS)
    submit(bed, namespace, high)
    running(bed, namespace, "high")
    submit(bed, namespace, low)
    running(bed, namespace, "low")

    def shared() -> Object | None:
        found = (one for one in slots(bed, node.name) if len(one["status"]["sharers"]) == 2)
        return next(found, None)

    slot = until(shared, what="one card is shown with both", account=lambda: said(bed, namespace))
    ended(bed, namespace, "high")
    ended(bed, namespace, "low")
    return slot, slot["status"]["card"]


def test_low_priority_gives_way_on_a_card_that_is_accounted_for_and_given_back(
    bed: Testbed, node: Node, managed: str
) -> None:
    slot, card = share_one_card(bed, node, managed)
    assert slot["status"]["healthy"]
    assert {one["priority"] for one in slot["status"]["sharers"]} == {"high", "low"}
    assert beside(node, card, "low") <= 0.01
    unreserved(bed)


def test_without_the_gate_they_take_turns(bed: Testbed, node: Node, managed: str) -> None:
    _, card = share_one_card(bed, node, managed, isolation="none")
    assert beside(node, card, "low") >= 0.4
    unreserved(bed)


def test_a_whole_card_is_never_a_shared_one(bed: Testbed, node: Node, managed: str) -> None:
    submit(bed, managed, dialled("part", {"share": "0.5"}, steps=2000))
    running(bed, managed, "part")
    submit(bed, managed, dialled("whole", steps=20))
    ended(bed, managed, "whole")
    (shared,) = (one for one in slots(bed, node.name) if one["status"].get("card"))
    (pod,) = reservations(bed)
    assert pod["metadata"]["uid"] == shared["status"]["reservation"]
    (other,) = (card for card in uuids(node.name, CARDS) if card != shared["status"]["card"])
    assert "whole" in counted(node, other)
    path = f"/apis/kubeflow.org/v1/namespaces/{managed}/pytorchjobs/part"
    bed.api.delete(path)
    unreserved(bed)


def test_nobody_else_may_ask_for_parts_of_cards(bed: Testbed, node: Node, managed: str) -> None:
    limits = {"kfext.dev/gpu-0": "50"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "thief"},
        "spec": {"containers": [container], "schedulingGates": []},
    }
    with pytest.raises(ApiError, match=names.GATE):
        bed.api.create(f"/api/v1/namespaces/{managed}/pods", pod)
