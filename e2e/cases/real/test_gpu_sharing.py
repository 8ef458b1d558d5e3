"""Real jobs share cards that a node's CPU plays: reservation, parts, gates, all through kubelet."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.gpu.node_cards import uuids
from e2e.harness.gpu import (
    counted,
    install_sharing,
    play_cards,
    reservations,
    slots,
    uninstall_sharing,
)
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.install import install_kfext
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node, nodes
from kfext import names

CARDS = 2
STEPS = 200
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


@pytest.fixture
def team(bed: Testbed, managed: str) -> Team:
    return Team(bed, managed)


def unreserved(bed: Testbed) -> None:
    until(lambda: not reservations(bed), what="all cards are given back")


def late(node: Node, uuid: str, name: str) -> float:
    """Return the part of its kernels that a job began long after another had come to the card."""
    client = counted(node, uuid)[name]
    return float(client["late"]) / int(client["kernels"])


def share_one_card(team: Team, node: Node, *, isolation: str = "auto") -> Object:
    """Have two jobs train on one card until they end; return the SharedGPU while both ran."""
    gate = {"isolation": isolation}
    first = {"share": "0.5", "priority": "high", **gate}
    second = {"share": "0.3", "min_share": "0", **gate}
    team.submit(dialled("high", first, load_ms=60, steps=STEPS))
    team.running("high")
    team.submit(dialled("low", second, steps=STEPS))
    team.running("low")

    def shared() -> Object | None:
        found = (one for one in slots(team.bed, node.name) if len(one["status"]["sharers"]) == 2)
        return next(found, None)

    slot = until(shared, what="one card is shown with both", account=team.said)
    team.succeeded("high")
    team.succeeded("low")
    return slot


def test_low_priority_gives_way_on_a_card_that_is_accounted_for_and_given_back(
    team: Team, node: Node
) -> None:
    status = share_one_card(team, node)["status"]
    assert status["healthy"]
    assert {one["priority"] for one in status["sharers"]} == {"high", "low"}
    assert late(node, status["card"], "low") <= 0.01
    unreserved(team.bed)


def test_without_the_gate_they_take_turns(team: Team, node: Node) -> None:
    status = share_one_card(team, node, isolation="none")["status"]
    assert late(node, status["card"], "low") >= 0.4
    unreserved(team.bed)


def test_a_whole_card_is_never_a_shared_one(team: Team, node: Node) -> None:
    team.submit(dialled("part", {"share": "0.5"}, steps=10_000))
    team.running("part")
    team.submit(dialled("whole", steps=20))
    team.succeeded("whole")
    (shared,) = (one for one in slots(team.bed, node.name) if one["status"].get("card"))
    (pod,) = reservations(team.bed)
    assert pod["metadata"]["uid"] == shared["status"]["reservation"]
    (other,) = (card for card in uuids(node.name, CARDS) if card != shared["status"]["card"])
    assert "whole" in counted(node, other)
    team.delete("part")
    unreserved(team.bed)


def test_nobody_else_may_ask_for_parts_of_cards(team: Team, node: Node) -> None:
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
