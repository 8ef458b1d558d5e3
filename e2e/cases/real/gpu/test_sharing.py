"""Real jobs share cards that a CPU simulates: reservation, shares and gates, through kubelet."""

from typing import Any

import pytest

from e2e.gpu.node_cards import uuids
from e2e.harness.gpu import ENDLESS, HIGH, LOW, counted, late, reservations, slots, unreserved
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.realnodes import Node
from kfext import names
from kfext.gpu.hook.gate import OUTSTANDING

LOAD_MS = 30.0
Object = dict[str, Any]


def share_one_card(team: Team, node: Node, high: Object, low: Object) -> Object:
    """Have two jobs train on one card until low ends; return the SharedGPU while both ran.

    High trains for as long as low is there: steps of low alone would count as yielding.
    """
    team.submit(high)
    team.running("high")
    team.submit(low)
    team.running("low")

    def shared() -> Object | None:
        pairs = (slot for slot in slots(team.bed, node.name) if len(slot["status"]["sharers"]) == 2)
        return next(pairs, None)

    slot = until(shared, what="one card is shown with both", account=team.said)
    team.succeeded("low")
    team.delete("high")
    return slot


def test_low_priority_yields_on_a_card_that_is_accounted_for_and_then_released(
    team: Team, gpu_node: Node
) -> None:
    high, low = (
        dialled("high", HIGH, load_ms=LOAD_MS, steps=ENDLESS),
        dialled("low", LOW, steps=100),
    )
    status = share_one_card(team, gpu_node, high, low)["status"]
    assert status["healthy"]
    assert {sharer["priority"] for sharer in status["sharers"]} == {"high", "low"}
    assert late(gpu_node, status["card"], "low") <= 0.01
    assert 1 <= counted(gpu_node, status["card"])["low"]["outstanding"] <= OUTSTANDING
    unreserved(team.bed)


@pytest.mark.long
def test_without_the_gate_they_take_turns(team: Team, gpu_node: Node) -> None:
    # High has kernels on the card all the time, except while a busy CPU delays the start of a step.
    # The steps are long, so this is little.
    high, low = (
        dialled(name, terms, kernel_ms=3, steps=steps, disables=True)
        for name, terms, steps in (("high", HIGH, ENDLESS), ("low", LOW, 40))
    )
    status = share_one_card(team, gpu_node, high, low)["status"]
    counts = counted(gpu_node, status["card"])["low"]
    assert counts["beside"] >= 0.4 * counts["kernels"]
    unreserved(team.bed)


def test_a_whole_card_is_never_a_shared_one(team: Team, gpu_node: Node) -> None:
    team.submit(dialled("part", {"share": "0.5"}, steps=10_000))
    team.running("part")
    team.submit(dialled("whole", steps=20))
    team.succeeded("whole")
    (shared,) = (slot for slot in slots(team.bed, gpu_node.name) if slot["status"].get("card"))
    (pod,) = reservations(team.bed)
    assert pod["metadata"]["uid"] == shared["status"]["reservation"]
    (other,) = (card for card in uuids(gpu_node.name, 2) if card != shared["status"]["card"])
    assert "whole" in counted(gpu_node, other)
    team.delete("part")
    unreserved(team.bed)


def test_no_other_user_may_request_shares_of_cards(team: Team, gpu_node: Node) -> None:
    limits = {"kfext.dev/gpu-0": "50"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "thief"},
        "spec": {"containers": [container]},
    }
    with pytest.raises(ApiError, match=names.GATE):
        team.bed.api.create(f"/api/v1/namespaces/{team.namespace}/pods", pod)
