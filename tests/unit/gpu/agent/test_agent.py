"""The whole agent, with hooks as in a job's process; the test answers for kubelet."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import structlog

import kfext.gpu.agent.agent as module
from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.report import SlotState
from kfext.gpu.device.kubelet import AllocatedDevices, DevicePlugin, IncompleteError
from kfext.gpu.hook import words
from kfext.model.gpu import GpuShare
from tests.unit.gpu.agent.node import CARD, UNITS, Job, Node, until


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(module, "_LEARN_SECONDS", 0.02)
    monkeypatch.setattr(module, "_RETURN_SECONDS", 0.0)
    made = Node(tmp_path)
    made.start()
    await until(lambda: made.asked > 0)
    yield made
    await made.stop()


async def test_a_low_job_gives_way_to_a_high_one_that_comes_and_goes(node: Node) -> None:
    low = node.run("low")
    await until(lambda: low.led() and low.passes())
    high = node.run("high")
    high.busy()
    await until(lambda: not low.passes())
    await until(lambda: high.bells == 1)
    node.end("high")
    await until(lambda: low.passes() and low.led())


async def test_a_process_waits_for_the_terms_of_its_pod(node: Node) -> None:
    high, low = node.run("high"), node.run("low", promised=False)
    high.busy()
    asked = node.asked
    await until(lambda: node.asked > asked + 3)
    assert not low.led()
    assert not low.passes()  # at most one job has high priority, so it gives way
    node.promise("low")
    await until(lambda: low.led() and not low.passes())


@pytest.mark.parametrize("away", [grpc.RpcError("away"), IncompleteError("no pods yet")])
async def test_everything_continues_while_kubelet_is_away(node: Node, away: Exception) -> None:
    high, low = node.run("high"), node.run("low")
    high.busy()
    await until(lambda: low.led() and not low.passes())
    node.away = away
    asked = node.asked
    await until(lambda: node.asked > asked + 6)
    assert low.led()
    assert not low.passes()


async def test_an_agent_that_cannot_read_the_cards_is_replaced_after_a_while(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = node.agent.cards()
    assert node.agent.liveness_problem() is None
    monkeypatch.setattr(module, "_UNREAD_SECONDS", 0.1)
    node.reads = False
    await until(lambda: "not read" in (node.agent.liveness_problem() or ""))
    assert node.agent.cards() == before
    node.reads = True
    await until(lambda: node.agent.liveness_problem() is None)


async def test_a_new_agent_serves_kubelet_once_kubelet_has_listed_the_reservations(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    async def run(plugin: DevicePlugin) -> None:
        served.append(plugin.resource)

    monkeypatch.setattr(DevicePlugin, "run", run)
    await node.stop()
    node.away, asked = IncompleteError("no pods yet"), node.asked
    node.start()
    await until(lambda: node.asked > asked + 3)
    assert served == []
    node.away = None
    await until(lambda: len(served) == len(node.cards()))


def reserved_by(node: Node) -> str:
    return next((report.reservation for report in node.agent.reports()), "")


async def test_the_uid_of_a_reservation_is_not_shown_with_the_card_of_the_previous_reservation(
    node: Node,
) -> None:
    reservation = (CARD.namespace, CARD.pod)
    node.uids[reservation] = "first"
    await until(lambda: reserved_by(node) == "first")
    node.away = grpc.RpcError("away")
    asked = node.asked
    await until(lambda: node.asked > asked + 1)
    node.uids[reservation] = "second"
    asked = node.asked
    await until(lambda: node.asked > asked + 1)
    assert reserved_by(node) == "first"
    node.away = None
    await until(lambda: reserved_by(node) == "second")


async def test_a_new_agent_finds_all_running_pods(node: Node) -> None:
    high, low = node.run("high"), node.run("low")
    high.busy()
    await until(lambda: low.led() and not low.passes())
    await node.stop()
    before = low.orders.page
    node.start()
    await until(lambda: low.orders.page is not before and low.led() and not low.passes())


async def test_a_new_agent_shows_nothing_before_it_leads(node: Node) -> None:
    low = node.run("low")
    await until(low.led)
    await node.stop()
    node.start()
    assert node.agent.reports() == [], "nothing is shown of sharers that are not known yet"


async def test_a_new_agent_leads_no_job_before_all_have_reconnected(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, high = node.run("low"), node.run("high")
    high.busy()
    await until(lambda: low.led() and not low.passes())
    await node.stop()
    before, asked = low.orders.page, node.asked
    monkeypatch.setattr(module, "_RETURN_SECONDS", 3600.0)
    node.start()
    await until(lambda: node.processes(0) == 2 and node.asked > asked + 3)
    assert low.orders.page is before
    node.agent._leads_from = 0.0
    low.heard.clear()
    await until(lambda: low.orders.page is not before and low.led())
    assert low.heard, "it has got messages"
    assert set(low.heard) == {False}, "after each it knew before whom it gives way"


async def test_a_pod_that_gets_the_units_of_a_deleted_pod_has_its_own_terms(
    node: Node,
) -> None:
    low = node.run("low")
    await until(low.led)
    low.own.words[words.WAITED_NS] = 10**18
    await until(lambda: any(sharer.waited > 0 for sharer in node.agent.reports()[0].sharers))
    node.end("low")
    node.terms["team", "next"] = GpuShare(30, high=True)
    _, folder = node.agent._allocate(0, UNITS["low"]).mounts
    high = Job(f"{folder}/agent", "high")
    node.held = [
        *node.held,
        AllocatedDevices("team", "next", "a", "kfext.dev/gpu-0", frozenset(UNITS["low"])),
    ]
    other = node.run("other")
    await until(lambda: high.bells == 1)
    high.busy()
    await until(lambda: other.led() and not other.passes())
    result, _ = node.agent.reports()
    assert {(sharer.pod, sharer.high, sharer.waited) for sharer in result.sharers} == {
        *(("next", True, 0), ("other", False, 0)),
    }


async def test_a_new_pod_with_the_name_of_the_last_pod_has_a_record_of_its_own(
    node: Node,
) -> None:
    low = node.run("low")
    await until(low.led)
    low.own.words[words.WAITED_NS] = 10**18
    await until(lambda: any(sharer.waited > 0 for sharer in node.sharers()))
    node.end("low")
    again = node.run("low")  # before kubelet could answer without the last pod
    await until(again.led)
    assert [sharer.waited for sharer in node.sharers()] == [0]


async def test_no_gate_opens_on_a_card_without_its_reservation(node: Node) -> None:
    low = node.run("low")
    await until(lambda: low.led() and low.passes())
    node.held = [device for device in node.held if device != CARD]
    await until(lambda: not low.passes())
    assert low.led()
    node.held = [CARD, *node.held]
    await until(low.passes)


async def test_an_error_on_one_card_is_logged_once_and_ends_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, look = 0, SharedCard.look

    def fails(self: SharedCard, now: float) -> float:
        nonlocal failed
        if self._slot == 1:
            failed += 1
            raise ZeroDivisionError
        return look(self, now)

    monkeypatch.setattr(SharedCard, "look", fails)
    low = node.run("low")
    with structlog.testing.capture_logs() as logs:
        await until(lambda: failed > 3 and low.led())
    assert [log["log_level"] for log in logs] == ["error"]


async def test_a_slot_is_shown_with_its_card(node: Node) -> None:
    await until(lambda: node.agent.state(0).memory == 16384)
    assert node.agent.state(0) == SlotState(16384, "", False)
    node.troubles["GPU-1"] = "it reported Xid 79"
    await until(lambda: node.agent.state(0).trouble == "it reported Xid 79")
    assert not node.agent.state(1).trouble, "it may get another card"


TROUBLES = {
    "a card that is split for several pods": ("GPU-1::3", "several pods at once"),
    "a card that the driver does not show": ("GPU-9", "does not show it"),
}


@pytest.mark.parametrize(("card", "why"), TROUBLES.values(), ids=TROUBLES)
async def test_a_card_that_cannot_be_shared_is_shown_as_such(
    node: Node, card: str, why: str
) -> None:
    node.held = [replace(CARD, devices=frozenset({card}))]
    await until(lambda: why in node.agent.state(0).trouble)


OFFERED: dict[str, tuple[set[str], str]] = {
    "kubelet does not say": (set(), ""),
    "whole cards": ({"GPU-1", "GPU-2"}, ""),
    "a remaining card": ({"GPU-1", "GPU-2", "GPU-3"}, ""),
    "a remaining card that is not shown": ({"GPU-1", "GPU-3"}, "does not show it"),
    "cards by number": ({"0", "1"}, "does not show it"),
    "cards that several pods may share": ({"GPU-2::0", "GPU-2::1"}, "several pods at once"),
    "parts of cards": ({"MIG-1", "MIG-2"}, "split by MIG"),
}


@pytest.mark.parametrize(("offered", "why"), OFFERED.values(), ids=OFFERED)
async def test_a_slot_without_a_card_has_a_problem_if_no_card_that_it_may_get_can_be_shared(
    node: Node, offered: set[str], why: str
) -> None:
    node.offered = offered
    await until(lambda: node.agent._allocatable == offered)
    assert why in node.agent.state(1).trouble
    assert bool(why) == bool(node.agent.state(1).trouble)
    assert not node.agent.state(0).trouble, "its own card is as it was"
    assert node.agent.state(1).memory == (0 if why else 16384)


async def test_the_ids_of_a_node_count_while_kubelet_is_away_until_they_change(
    node: Node,
) -> None:
    node.offered = {"GPU-1::0", "GPU-1::1"}
    await until(lambda: bool(node.agent.state(1).trouble))
    node.offered, asked = None, node.asked
    await until(lambda: node.asked > asked + 3)
    assert node.agent.state(1).trouble
    node.offered = {"GPU-1", "GPU-2"}
    await until(lambda: not node.agent.state(1).trouble)


async def test_a_slot_without_a_card_is_fine_if_another_can_be_shared(node: Node) -> None:
    node.troubles["GPU-2"] = "it is split by MIG"
    await until(lambda: node.agent.state(1) == SlotState(0, "it is split by MIG", False))
    node.troubles["GPU-3"] = ""
    await until(lambda: node.agent.state(1) == SlotState(16384, "", False))
