import json
from dataclasses import asdict, replace
from typing import Any, cast

import pytest

from kfext import names
from kfext.errors import NotFound
from kfext.gpu.agent.api_server import (
    PAUSE_SECONDS,
    REPEAT_SECONDS,
    NodePods,
    SharedGpus,
    _decode,
    status_of,
)
from kfext.gpu.agent.report import SharerReport, SlotReport, SlotState
from kfext.kube.client import Client
from kfext.kube.informer import Key
from kfext.model.gpu import GpuShare
from kfext.model.shared_gpu import parse_shared_gpu

SHARE = GpuShare(50, 2**30, high=True, loss_budget=0.1, min_share=0.3)


def pod(annotations: dict[str, str]) -> bytes:
    return json.dumps({"metadata": {"uid": "u", "annotations": annotations}}).encode()


TERMS: dict[str, tuple[dict[str, str], GpuShare | None]] = {
    "the terms of the controller": ({names.GPU_TERMS: json.dumps(asdict(SHARE))}, SHARE),
    "settings of a user, which are ignored": (
        {names.GPU_SHARE: "0.9", names.GPU_PRIORITY: "high"},
        None,
    ),
    "no annotations": ({}, None),
    "malformed JSON": ({names.GPU_TERMS: "{"}, None),
    "a text that is too long": ({names.GPU_TERMS: " " * 2000 + json.dumps(asdict(SHARE))}, None),
}


@pytest.mark.parametrize(("annotations", "want"), TERMS.values(), ids=TERMS)
def test_the_terms_of_a_pod(annotations: dict[str, str], want: Any) -> None:
    result = _decode(pod(annotations))
    assert (result.uid, result.terms) == ("u", want)


def raw_pod(name: str, *, namespace: str = "team", shares: bool = True, **status: Any) -> bytes:
    """Return the JSON of a pod; `deleted` in `status` becomes its deletionTimestamp."""
    annotations = {names.GPU_TERMS: json.dumps(asdict(SHARE))} if shares else {}
    metadata = {"uid": name, "name": name, "namespace": namespace, "annotations": annotations}
    deleted = status.pop("deleted", None)
    metadata |= {"deletionTimestamp": deleted} if deleted else {}
    return json.dumps({"metadata": metadata, "status": status}).encode()


RUNNING: dict[str, tuple[bytes, bool]] = {
    "a running pod that shares": (raw_pod("a", phase="Running"), True),
    "a reservation": (
        raw_pod("a", namespace=names.GPU_NAMESPACE, shares=False, phase="Running"),
        True,
    ),
    "a pod without a share": (raw_pod("a", shares=False, phase="Running"), False),
    "a pod that kubelet may not have admitted yet": (raw_pod("a", phase="Pending"), False),
    "a pod that has ended": (raw_pod("a", phase="Succeeded"), False),
    "a pod that is being deleted": (
        raw_pod("a", phase="Running", deleted="2026-11-25T00:00:00Z"),
        False,
    ),
}


@pytest.mark.parametrize(("raw", "runs"), RUNNING.values(), ids=RUNNING)
async def test_the_pods_that_kubelet_must_list(raw: bytes, *, runs: bool) -> None:
    pods = NodePods(cast(Client, None), node="node-1")
    result = _decode(raw)
    pods._pods.store.put(Key(result.uid, *result.pod), result)
    assert (result.pod in pods.running()) is runs


HIGH = SharerReport("team", "train", high=True, share=0.5, used=0.9, busy=0.512, uid="uid-high")
LOW = SharerReport(
    "team", "tune", high=False, share=0.3, used=0.4, waited=7.9, memory=2**30, uid="uid-low"
)
SLOT = SlotReport(0, "GPU-1", 0.013, (HIGH, LOW), reservation="uid-hold", state=SlotState(16384))


class FakeClient:
    """Records the objects applied, by the last part of their path. `gone`: all were deleted."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, dict[str, Any]]] = []
        self.gone = False
        self.node_uid = "uid-n"

    async def apply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.gone and path.endswith("/status"):
            raise NotFound(status=404, reason="NotFound", message="")
        self.applied.append((path.rsplit("/", 1)[-1], body))
        return body

    async def get(self, path: str) -> dict[str, Any]:
        assert path == "/api/v1/nodes/n"
        return {"metadata": {"uid": self.node_uid}}


def shared_gpus(client: FakeClient) -> SharedGpus:
    return SharedGpus(cast(Client, client), node="n", reports=lambda: [SLOT])


def test_the_controller_reads_what_the_agent_writes() -> None:
    parsed = parse_shared_gpu({"spec": {"node": "n", "slot": 0}, "status": status_of(SLOT)})
    assert parsed is not None
    assert (parsed.card, parsed.reservation, parsed.memory) == ("GPU-1", "uid-hold", 16384)
    assert (parsed.healthy, parsed.moved) == (True, False)
    assert [
        (sharer.pod, sharer.busy, sharer.loss, sharer.gets, sharer.evict)
        for sharer in parsed.sharers
    ] == [("uid-high", 510, 10, None, False), ("uid-low", None, None, 400, False)]


def test_a_card_with_an_unknown_reservation_is_not_shown_as_reserved() -> None:
    assert "card" not in status_of(replace(SLOT, reservation=""))


def test_a_high_priority_job_without_a_hook_is_not_shown_as_idle() -> None:
    unhooked = replace(HIGH, busy=None, unhooked="CallbackList")
    (result,) = status_of(replace(SLOT, sharers=(unhooked,)))["sharers"]
    assert "busyPermille" not in result
    assert result["unhooked"] == "CallbackList"


def test_an_unknown_value_of_a_job_is_not_shown_as_zero() -> None:
    unhooked = replace(LOW, used=None, memory=None)
    (result,) = status_of(replace(SLOT, sharers=(unhooked,)))["sharers"]
    assert result.keys().isdisjoint({"harvestPermille", "memoryMiB"})
    (idle,) = status_of(replace(SLOT, sharers=(replace(LOW, used=0.0),)))["sharers"]
    assert idle["harvestPermille"] == 0


COARSE: dict[str, tuple[float | None, int]] = {
    "the measured time is rounded up to milliseconds": (0.0421, 43),
    "a process reports a time of 0": (0.0, 1),
    "no process reports its time any more": (None, 1),
}


@pytest.mark.parametrize(("longest", "want"), COARSE.values(), ids=COARSE)
def test_a_micro_step_is_shown_only_if_it_is_too_long(longest: float | None, want: int) -> None:
    def coarse_millis(low: SharerReport) -> object:
        report = replace(SLOT, sharers=(low,))
        return status_of(report)["sharers"][0].get("coarseMillis")

    assert coarse_millis(replace(LOW, longest=longest, coarse=True)) == want
    assert coarse_millis(replace(LOW, longest=longest)) is None


async def test_a_slot_is_created_with_its_node_as_owner_and_then_written_if_it_changes() -> None:
    client = FakeClient()
    writer = shared_gpus(client)
    await writer.write(SLOT, now=0.0)
    await writer.write(SLOT, now=50.0)
    (_, created), (path, status) = client.applied
    assert created["spec"] == {"node": "n", "slot": 0}
    assert created["metadata"]["ownerReferences"][0]["uid"] == "uid-n"
    assert path == "status"
    assert status["status"] == status_of(SLOT)


NEW_LOSS = replace(SLOT, loss=0.2)
DECISIONS = {
    "a card": replace(SLOT, card="GPU-2"),
    "health": replace(SLOT, state=SlotState(16384, "it reported Xid 79")),
    "the sharers": replace(SLOT, sharers=(HIGH,)),
    "strikes of a sharer": replace(SLOT, sharers=(HIGH, replace(LOW, strikes=1))),
    "a sharer that must leave": replace(SLOT, sharers=(HIGH, replace(LOW, evict=True))),
}


async def test_a_new_measurement_is_written_after_a_pause() -> None:
    client = FakeClient()
    writer = shared_gpus(client)
    await writer.write(SLOT, now=0.0)
    await writer.write(NEW_LOSS, now=PAUSE_SECONDS - 1)
    assert len(client.applied) == 2
    await writer.write(NEW_LOSS, now=PAUSE_SECONDS)
    assert len(client.applied) == 3


@pytest.mark.parametrize("changed", DECISIONS.values(), ids=DECISIONS)
async def test_a_value_that_decisions_depend_on_is_written_at_once(changed: SlotReport) -> None:
    client = FakeClient()
    writer = shared_gpus(client)
    await writer.write(SLOT, now=0.0)
    await writer.write(changed, now=1.0)
    assert len(client.applied) == 3


async def test_a_slot_that_was_deleted_by_hand_is_recreated() -> None:
    client = FakeClient()
    writer = shared_gpus(client)
    await writer.write(SLOT, now=0.0)
    client.gone = True
    with pytest.raises(NotFound):
        await writer.write(DECISIONS["health"], now=1.0)
    client.gone, client.node_uid = False, "uid-again"
    await writer.write(DECISIONS["health"], now=2.0)
    assert [path == "status" for path, _ in client.applied] == [False, True, False, True]
    (_, created) = client.applied[2]
    owner = created["metadata"]["ownerReferences"][0]
    assert owner["uid"] == "uid-again", "the Node was created again too"


async def test_an_unchanged_slot_is_applied_again_after_a_while() -> None:
    client = FakeClient()
    writer = shared_gpus(client)
    await writer.write(SLOT, now=0.0)
    await writer.write(SLOT, now=REPEAT_SECONDS)
    assert [path for path, _ in client.applied] == [client.applied[0][0], "status", "status"]
