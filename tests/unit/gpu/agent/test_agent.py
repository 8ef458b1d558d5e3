"""The whole agent, with real hooks; the test plays kubelet, the API server and the driver."""

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
    monkeypatch.setattr(module, "_OFFERED_SECONDS", 0.02)
    monkeypatch.setattr(module, "_RETURN_SECONDS", 0.0)
    started = Node(tmp_path)
    started.start()
    await until(lambda: started.requests > 0)
    yield started
    await started.stop()


async def test_a_low_priority_job_gives_way_until_the_high_priority_job_ends(node: Node) -> None:
    low = node.run("low")
    await until(lambda: low.agent_alive() and low.passes())
    high = node.run("high")
    high.set_busy()
    await until(lambda: not low.passes())
    await until(lambda: high.bells == 1)
    node.end("high")
    await until(lambda: low.passes() and low.agent_alive())


async def test_a_process_with_unknown_terms_gives_way_without_orders(node: Node) -> None:
    high, low = node.run("high"), node.run("low", promised=False)
    high.set_busy()
    requests = node.requests
    await until(lambda: node.requests > requests + 3)
    assert not low.agent_alive()
    assert not low.passes()  # only one job can have high priority, so this job gives way
    node.promise("low")
    await until(lambda: low.agent_alive() and not low.passes())


@pytest.mark.parametrize("away", [grpc.RpcError("away"), IncompleteError("no pods yet")])
async def test_known_jobs_are_directed_while_kubelet_is_away(node: Node, away: Exception) -> None:
    high, low = node.run("high"), node.run("low")
    high.set_busy()
    await until(lambda: low.agent_alive() and not low.passes())
    node.error = away
    requests = node.requests
    await until(lambda: node.requests > requests + 6)
    assert low.agent_alive()
    assert not low.passes()


async def test_an_agent_that_cannot_read_the_cards_for_long_is_not_live(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = node.agent.cards()
    assert node.agent.liveness_problem() is None
    monkeypatch.setattr(module, "_UNREAD_SECONDS", 0.1)
    node.readable = False
    await until(lambda: "not read" in (node.agent.liveness_problem() or ""))
    assert node.agent.cards() == before
    node.readable = True
    await until(lambda: node.agent.liveness_problem() is None)


async def test_a_new_agent_serves_kubelet_once_kubelet_has_listed_the_reservations(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    async def run(plugin: DevicePlugin) -> None:
        served.append(plugin.resource)

    monkeypatch.setattr(DevicePlugin, "run", run)
    await node.stop()
    node.error, requests = IncompleteError("no pods yet"), node.requests
    node.start()
    await until(lambda: node.requests > requests + 3)
    assert served == []
    node.error = None
    await until(lambda: len(served) == len(node.cards()))


def reservation_uid(node: Node) -> str:
    return next((report.reservation for report in node.agent.reports()), "")


async def test_the_uid_of_a_new_reservation_is_shown_only_with_its_own_card(node: Node) -> None:
    reservation = (CARD.namespace, CARD.pod)
    node.uids[reservation] = "first"
    await until(lambda: reservation_uid(node) == "first")
    node.error = grpc.RpcError("away")
    requests = node.requests
    await until(lambda: node.requests > requests + 1)
    node.uids[reservation] = "second"
    requests = node.requests
    await until(lambda: node.requests > requests + 1)
    assert reservation_uid(node) == "first"
    node.error = None
    await until(lambda: reservation_uid(node) == "second")


async def test_a_new_agent_directs_the_pods_that_run(node: Node) -> None:
    high, low = node.run("high"), node.run("low")
    high.set_busy()
    await until(lambda: low.agent_alive() and not low.passes())
    await node.stop()
    before = low.orders.page
    node.start()
    await until(lambda: low.orders.page is not before and low.agent_alive() and not low.passes())


async def test_a_new_agent_reports_nothing_before_it_directs_processes(node: Node) -> None:
    low = node.run("low")
    await until(low.agent_alive)
    await node.stop()
    node.start()
    assert node.agent.reports() == []


async def test_a_new_agent_directs_no_job_before_all_have_reconnected(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, high = node.run("low"), node.run("high")
    high.set_busy()
    await until(lambda: low.agent_alive() and not low.passes())
    await node.stop()
    before, requests = low.orders.page, node.requests
    monkeypatch.setattr(module, "_RETURN_SECONDS", 3600.0)
    node.start()
    await until(lambda: node.processes(0) == 2 and node.requests > requests + 3)
    assert low.orders.page is before
    node.agent._directs_from = 0.0
    low.passed.clear()
    await until(lambda: low.orders.page is not before and low.agent_alive())
    assert low.passed, "it has got messages"
    assert set(low.passed) == {False}, "after each message it knew the high-priority job"


async def test_a_pod_that_gets_the_units_of_a_deleted_pod_has_its_own_terms(node: Node) -> None:
    low = node.run("low")
    await until(low.agent_alive)
    low.page.words[words.WAITED_NS] = 10**18
    await until(lambda: any(sharer.waited > 0 for sharer in node.agent.reports()[0].sharers))
    node.end("low")
    node.terms["team", "next"] = GpuShare(30, high=True)
    _, folder = node.agent._allocate(0, UNITS["low"]).mounts
    high = Job(f"{folder}/agent", "high")
    node.allocated = [
        *node.allocated,
        AllocatedDevices("team", "next", "a", "kfext.dev/gpu-0", frozenset(UNITS["low"])),
    ]
    other = node.run("other")
    await until(lambda: high.bells == 1)
    high.set_busy()
    await until(lambda: other.agent_alive() and not other.passes())
    result, _ = node.agent.reports()
    assert {(sharer.pod, sharer.high, sharer.waited) for sharer in result.sharers} == {
        *(("next", True, 0), ("other", False, 0))
    }


async def test_a_new_pod_with_the_name_of_the_last_has_its_own_record(node: Node) -> None:
    low = node.run("low")
    await until(low.agent_alive)
    low.page.words[words.WAITED_NS] = 10**18
    await until(lambda: any(sharer.waited > 0 for sharer in node.sharers()))
    node.end("low")
    successor = node.run("low")  # before kubelet could answer without the last pod
    await until(successor.agent_alive)
    assert [sharer.waited for sharer in node.sharers()] == [0]


async def test_no_gate_opens_on_a_card_without_its_reservation(node: Node) -> None:
    low = node.run("low")
    await until(lambda: low.agent_alive() and low.passes())
    node.allocated = [device for device in node.allocated if device != CARD]
    await until(lambda: not low.passes())
    assert low.agent_alive()
    node.allocated = [CARD, *node.allocated]
    await until(low.passes)


async def test_an_error_on_one_card_is_logged_once_and_other_cards_are_updated(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, original = 0, SharedCard.update

    def update(self: SharedCard, now: float) -> float:
        nonlocal failures
        if self._slot == 1:
            failures += 1
            raise ZeroDivisionError
        return original(self, now)

    monkeypatch.setattr(SharedCard, "update", update)
    low = node.run("low")
    with structlog.testing.capture_logs() as logs:
        await until(lambda: failures > 3 and low.agent_alive())
    assert [log["log_level"] for log in logs] == ["error"]


async def test_the_state_of_a_slot_is_the_state_of_its_card(node: Node) -> None:
    await until(lambda: node.agent.state(0).memory == 16384)
    assert node.agent.state(0) == SlotState(16384, "", False)
    node.troubles["GPU-1"] = "it reported Xid 79"
    await until(lambda: node.agent.state(0).trouble == "it reported Xid 79")
    assert not node.agent.state(1).trouble, "slot 1 may get the other card"


TROUBLES = {
    "a card that the device plugin replicates": ("GPU-1::3", "several pods at once"),
    "a card that the driver does not show": ("GPU-9", "does not show it"),
}


@pytest.mark.parametrize(("card", "why"), TROUBLES.values(), ids=TROUBLES)
async def test_a_slot_says_why_its_card_is_not_shared(node: Node, card: str, why: str) -> None:
    node.allocated = [replace(CARD, devices=frozenset({card}))]
    await until(lambda: why in node.agent.state(0).trouble)


OFFERED: dict[str, tuple[set[str], str]] = {
    "kubelet does not say": (set(), ""),
    "whole cards": ({"GPU-1", "GPU-2"}, ""),
    "a card of two more can be shared": ({"GPU-1", "GPU-2", "GPU-3"}, ""),
    "a card that the driver does not show": ({"GPU-1", "GPU-3"}, "does not show it"),
    "cards by number": ({"0", "1"}, "does not show it"),
    "replicated cards": ({"GPU-2::0", "GPU-2::1"}, "several pods at once"),
    "MIG devices": ({"MIG-1", "MIG-2"}, "split by MIG"),
}


@pytest.mark.parametrize(("offered", "why"), OFFERED.values(), ids=OFFERED)
async def test_a_slot_without_a_card_has_a_trouble_if_no_card_that_it_may_get_can_be_shared(
    node: Node, offered: set[str], why: str
) -> None:
    node.offered = offered
    await until(lambda: node.agent._offered == offered)
    assert why in node.agent.state(1).trouble
    assert bool(why) == bool(node.agent.state(1).trouble)
    assert not node.agent.state(0).trouble, "slot 0 has a card"
    assert node.agent.state(1).memory == (0 if why else 16384)


async def test_the_last_ids_from_kubelet_hold_while_it_is_away(node: Node) -> None:
    node.offered = {"GPU-1::0", "GPU-1::1"}
    await until(lambda: bool(node.agent.state(1).trouble))
    node.offered, requests = None, node.requests
    await until(lambda: node.requests > requests + 3)
    assert node.agent.state(1).trouble
    node.offered = {"GPU-1", "GPU-2"}
    await until(lambda: not node.agent.state(1).trouble)


async def test_a_slot_has_no_trouble_if_a_free_card_can_be_shared(node: Node) -> None:
    node.troubles["GPU-2"] = "it is split by MIG"
    await until(lambda: node.agent.state(1) == SlotState(0, "it is split by MIG", False))
    node.troubles["GPU-3"] = ""
    await until(lambda: node.agent.state(1) == SlotState(16384, "", False))
