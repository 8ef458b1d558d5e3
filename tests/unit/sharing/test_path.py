"""A job that shares a GPU, from the queue to its pods, with the planner alone."""

from typing import Any

import pytest

from kfext import names
from kfext.core.lifecycle.steps import (
    Pin,
    Release,
    SaveState,
    Suspend,
    Unsuspend,
    job_operations,
)
from kfext.model.gpu import GpuShare
from kfext.model.pod import parse_pod
from kfext.model.shared_gpu import CALLBACK_LIST, CardSharer
from kfext.state.mirror.cards import Unreserve
from tests.builders import job, moment
from tests.gpu_builders import sharing, slot
from tests.unit.sharing.stages import FIRST, World, admitted, started


def test_a_pod_gets_its_share_once_the_gpu_is_reserved_and_its_card_known() -> None:
    world = World(admitted(sharing("0.5", priority="high")))
    step = world.step()
    assert isinstance(step, Unsuspend)
    assert (step.plan.slots, step.plan.shares["worker"].units) == ({FIRST: 0}, 50)
    assert not world.create()
    (container,) = world.pods["pod-0"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"kfext.dev/gpu-0": "50"}
    assert world.reason() == names.REASON_WAITING_FOR_CARD
    world.reserve()
    step = world.step()
    assert isinstance(step, Pin)
    assert [node for _, node in step.pins] == ["n"]
    terms = world.pods["pod-0"]["metadata"]["annotations"][names.GPU_TERMS]
    assert '"high":true' in terms


def test_the_pods_of_a_job_without_a_plan_are_refused() -> None:
    world = World(admitted(sharing("0.5")))
    assert "has not placed" in world.create()


def test_a_job_that_was_resumed_by_hand_returns_to_the_queue() -> None:
    world = World(admitted(sharing("0.5")))
    world.raw["spec"]["runPolicy"]["suspend"] = False
    world.show()
    assert isinstance(world.step(), SaveState)
    assert isinstance(world.step(), Suspend)


def test_a_job_moves_if_its_gpu_is_not_reserved_in_time() -> None:
    world = started()
    world.create()
    assert world.reason() == names.REASON_WAITING_FOR_CARD
    world.now += 61
    step = world.step()
    assert isinstance(step, Suspend)
    assert (step.state.reason, list(step.state.excluded)) == (names.REASON_CARD_TIMEOUT, ["n"])
    template = world.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert names.GPU_SLOTS not in template["metadata"]["annotations"]


def test_two_replicas_wait_for_two_cards() -> None:
    world = started(2, priority="high")
    plan = next(iter(world.planner.cluster.jobs.values())).plan
    assert plan is not None
    assert sorted(plan.slots.values()) == [0, 1]
    for index in range(2):
        world.create(index)
    world.reserve()
    assert isinstance(world.step(), Pin)


EDITED_SLOTS = {"a larger share than planned": "90@0", "a different slot than planned": "50@1"}


@pytest.mark.parametrize("written", EDITED_SLOTS.values(), ids=EDITED_SLOTS)
def test_a_pod_of_an_edited_template_does_not_start(written: str) -> None:
    world = started()
    template = world.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["annotations"][names.GPU_SLOTS] = written
    world.create()
    world.reserve()
    step = world.step()
    assert isinstance(step, Suspend)
    assert step.state.reason == names.REASON_SHARE_REFUSED


def placed() -> World:
    world = started()
    world.create()
    world.reserve()
    assert isinstance(world.step(), Pin)
    world.pods["pod-0"]["spec"]["nodeName"] = "n"
    world.pods["pod-0"]["metadata"]["resourceVersion"] = "3"
    world.see("pod-0")
    assert world.reason() == names.REASON_PLACED
    return world


REPORTS = {
    "its slot has a new card": ({"card": "GPU-9", "moved": True}, names.REASON_CARD_LOST),
    "its card is unhealthy": ({"card": "GPU-0", "healthy": False}, names.REASON_CARD_LOST),
    "it is evicted": (
        {"card": "GPU-0", "sharers": (CardSharer("pod-0", evict=True),)},
        names.REASON_EVICTED,
    ),
}


@pytest.mark.parametrize(("report", "reason"), REPORTS.values(), ids=REPORTS)
def test_a_report_of_the_agent_stops_a_job(report: dict[str, Any], reason: str) -> None:
    world = placed()
    world.planner.cluster.observe_card(None, slot("n", 0, **report))
    step = world.step()
    assert isinstance(step, Suspend)
    assert step.state.reason == reason


def test_a_job_shows_its_shares_and_their_cost() -> None:
    world = placed()
    sharers = (CardSharer("pod-0", loss=14), CardSharer("another's", gets=400))
    world.planner.cluster.observe_card(None, slot("n", 0, card="GPU-0", sharers=sharers))
    assert world.step() is None
    (tracked,) = world.planner.cluster.jobs.values()
    assert tracked.verdict is not None
    assert "; slot 0 of n (GPU-0) with 1 other, losing 1 %" in tracked.verdict.message


REASONS: dict[str, tuple[CardSharer, str]] = {
    "others do not know when it works": (
        CardSharer("pod-0", unhooked=CALLBACK_LIST),
        "alone, not hooked: Model.fit is given a CallbackList instead of a list",
    ),
    "it yields late": (
        CardSharer("pod-0", gets=400, coarse=42),
        "alone, working 40 % of the time, it yields only after micro-steps of up to 42 ms",
    ),
    "its minimum does not fit beside the loss budget of another job": (
        CardSharer("pod-0", gets=30, infeasible=True),
        "alone, working 3 % of the time, its minimum cannot be met within the loss budget of the "
        "job beside it",
    ),
    "it was shut out": (
        CardSharer("pod-0", gets=30, strikes=2),
        "alone, working 3 % of the time, shut out 2 of 3 times for losses",
    ),
}


@pytest.mark.parametrize(("sharer", "clause"), REASONS.values(), ids=REASONS)
def test_a_job_shows_the_reason_of_its_shares(sharer: CardSharer, clause: str) -> None:
    world = placed()
    world.planner.cluster.observe_card(None, slot("n", 0, card="GPU-0", sharers=(sharer,)))
    assert world.step() is None
    (tracked,) = world.planner.cluster.jobs.values()
    assert tracked.verdict is not None
    assert tracked.verdict.message.endswith(f"slot 0 of n (GPU-0) {clause}")


def test_an_edited_share_applies_from_the_next_start() -> None:
    world = placed()
    world.raw["metadata"]["annotations"][names.GPU_SHARE] = "0.9"
    world.show()
    step = world.step()
    assert isinstance(step, SaveState), "the edit is recorded, and nothing else"
    (tracked,) = world.planner.cluster.jobs.values()
    assert tracked.job.groups[0].share == GpuShare(50)


EDITS = {"a larger share": ("0.9", {"worker": 90}), "a whole GPU": (None, {})}


@pytest.mark.parametrize(("share", "units"), EDITS.values(), ids=EDITS)
def test_a_start_by_the_user_counts_as_the_next_start(
    share: str | None, units: dict[str, int]
) -> None:
    world = placed()
    world.raw["spec"]["runPolicy"]["suspend"] = True
    world.raw["metadata"]["annotations"][names.GPU_SHARE] = share or ""
    if share is None:
        del world.raw["metadata"]["annotations"][names.GPU_SHARE]
    world.show()
    while world.step() is not None:
        pass
    world.planner.cluster.observe_pod(parse_pod(world.pods.pop("pod-0")), None)
    world.raw["spec"]["runPolicy"]["suspend"] = False
    world.show()
    step = world.step()
    assert isinstance(step, Suspend)
    assert step.state.reason == names.REASON_SHARE_EDITED
    condition = {"type": "Suspended", "status": "True", "lastTransitionTime": moment(world.now)}
    world.raw["status"] = {"conditions": [condition]}
    world.show()
    assert world.reason() == names.REASON_WAITING_FOR_SUSPEND
    world.now += 60
    world.show()
    step = world.step()
    assert isinstance(step, Unsuspend)
    assert {type_: share.units for type_, share in step.plan.shares.items()} == units
    while step := world.step():
        assert isinstance(step, SaveState), "the job now has what it asks for"


def test_G4_a_shared_gpu_is_never_free_for_others_and_is_returned() -> None:
    world = started()
    ledger = world.planner.cluster.ledger

    def free() -> int:
        return int(ledger.free([names.NATIVE_GPU])[0, 0])

    assert free() == 1, "as soon as the job has a plan"
    world.create()
    world.reserve()
    assert free() == 1
    world.step()
    world.pods["pod-0"]["status"] = {"phase": "Succeeded"}
    world.see("pod-0")
    done = [{"type": "Succeeded", "status": "True"}]
    world.raw["status"] = {"conditions": done}
    world.show()
    world.step()
    (step,) = world.planner.card_steps(world.now)
    assert isinstance(step, Unreserve)
    world.planner.cluster.observe_pod(step.pod, None)
    assert free() == 2


def test_a_job_that_finds_no_card_waits_and_is_never_released() -> None:
    world = World(admitted(sharing("0.5", replicas=3, priority="high")))
    for _ in range(3):
        assert not isinstance(world.step(), Release)
        world.now += 3600
    (tracked,) = world.planner.cluster.jobs.values()
    assert tracked.verdict is not None
    assert "it shares GPUs, so it is never released" in tracked.verdict.message


def test_two_jobs_share_one_card() -> None:
    world = started(priority="high")
    other = admitted(sharing("0.5", uid="uid-2", min_share="0"))
    world.planner.cluster.observe_job(other.raw)
    ((tracked, step),) = world.planner.tick(world.moment).steps
    assert isinstance(step, Unsuspend)
    assert step.plan.slots == {FIRST: 0}
    assert job_operations(step, tracked.raw, tracked.job) is not None


def test_a_job_with_whole_gpus_is_unchanged() -> None:
    world = World(admitted(job().worker(1, gpus=1)))
    step = world.step()
    assert isinstance(step, Unsuspend)
    assert step.plan.slots == {}
    assert not world.create()
    (container,) = world.pods["pod-0"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert list(world.planner.card_steps(world.now)) == []
