"""Real jobs share cards that a CPU simulates; kubelet allocates the reservation and the shares."""

from typing import Any

import pytest

from e2e.gpu.node_cards import uuids
from e2e.harness.gpu import (
    ENDLESS,
    HIGH,
    LOW,
    counters_of,
    late_fraction,
    reservations,
    shared_gpus,
    wait_unreserved,
)
from e2e.harness.gpu_jobs import Team, dial_job
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.realnodes import Node
from kfext import names
from kfext.gpu.hook.gate import OUTSTANDING

LOAD_MS = 30.0
Object = dict[str, Any]


def share_one_card(team: Team, node: Node, high: Object, low: Object) -> Object:
    """Train two jobs on one card until low ends; return the SharedGPU as it was while both ran.

    High runs until low has ended, because steps of low alone would count as yielding.
    """
    team.submit(high)
    team.wait_running("high")
    team.submit(low)
    team.wait_running("low")

    def shared() -> Object | None:
        gpus = shared_gpus(team.bed, node.name)
        return next((gpu for gpu in gpus if len(gpu["status"]["sharers"]) == 2), None)

    slot = until(shared, what="one card is shown with both", account=team.messages)
    team.wait_succeeded("low")
    team.delete("high")
    return slot


def test_the_low_priority_job_yields_and_the_card_is_released_afterwards(
    team: Team, gpu_node: Node
) -> None:
    high, low = (
        dial_job("high", HIGH, load_ms=LOAD_MS, steps=ENDLESS),
        dial_job("low", LOW, steps=100),
    )
    status = share_one_card(team, gpu_node, high, low)["status"]
    assert status["healthy"]
    assert {sharer["priority"] for sharer in status["sharers"]} == {"high", "low"}
    assert late_fraction(gpu_node, status["card"], "low") <= 0.01
    assert 1 <= counters_of(gpu_node, status["card"])["low"]["outstanding"] <= OUTSTANDING
    wait_unreserved(team.bed)


@pytest.mark.long
def test_without_the_gate_low_priority_does_not_yield(team: Team, gpu_node: Node) -> None:
    # High always has kernels on the card, except while a busy CPU delays the start of a step. Steps
    # are long, so these gaps are short.
    high, low = (
        dial_job(name, terms, kernel_ms=3, steps=steps, unhooked=True)
        for name, terms, steps in (("high", HIGH, ENDLESS), ("low", LOW, 40))
    )
    status = share_one_card(team, gpu_node, high, low)["status"]
    counts = counters_of(gpu_node, status["card"])["low"]
    assert counts["beside"] >= 0.4 * counts["kernels"]
    wait_unreserved(team.bed)


def test_a_whole_card_is_never_a_shared_card(team: Team, gpu_node: Node) -> None:
    team.submit(dial_job("part", {"share": "0.5"}, steps=10_000))
    team.wait_running("part")
    team.submit(dial_job("whole", steps=20))
    team.wait_succeeded("whole")
    gpus = shared_gpus(team.bed, gpu_node.name)
    (shared,) = (gpu for gpu in gpus if gpu["status"].get("card"))
    (pod,) = reservations(team.bed)
    assert pod["metadata"]["uid"] == shared["status"]["reservation"]
    (other,) = (card for card in uuids(gpu_node.name, 2) if card != shared["status"]["card"])
    assert "whole" in counters_of(gpu_node, other)
    team.delete("part")
    wait_unreserved(team.bed)


def test_a_user_may_not_request_shares_of_cards_directly(team: Team, gpu_node: Node) -> None:
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
