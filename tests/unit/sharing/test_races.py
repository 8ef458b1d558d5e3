"""Races about cards: no pod ever runs on a card without a claim for its share."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.ledger.cards import has_priority
from kfext.core.lifecycle.steps import Pin, Replan, Suspend, Unsuspend
from kfext.model.pod import ReplicaKey
from kfext.model.shared_gpu import CardSharer
from kfext.state.mirror.cards import Reserve, Unreserve
from tests.gpu_builders import MEMORY, plain_node, reservation, slot
from tests.unit.sharing.stages import (
    HOLDING,
    STAGES,
    World,
    bind,
    decide,
    end,
    gated,
    placed,
    planned,
    remove,
    reserved,
    restart,
    show_newer_version,
    show_reservation,
    started,
    submit,
    terminate,
)

WORKER = ReplicaKey("worker", 0)
HERE = ("n", 0)


def started_on(world: World) -> dict[str, int]:
    """Return the jobs that start now, each with its slot."""
    steps = decide(world)
    return {
        uid: step.plan.slots[WORKER] for uid, step in steps.items() if isinstance(step, Unsuspend)
    }


def free(world: World) -> int:
    return int(world.planner.cluster.ledger.free([names.NATIVE_GPU])[0, 0])


def due(world: World) -> list[Reserve | Unreserve]:
    return list(world.planner.card_steps(world.now))


# --- which job gets a card ------------------------------------------------------------------------


def test_jobs_decided_on_together_do_not_get_the_same_card() -> None:
    world = planned()
    for uid in ("uid-2", "uid-3"):
        submit(world, uid, priority="high")
    assert started_on(world) == {"uid-2": 1}


HOLDING_STAGES = {name: STAGES[name] for name in HOLDING}


@pytest.mark.parametrize("after", [lambda world: None, restart], ids=["no restart", "a restart"])
@pytest.mark.parametrize("stage", HOLDING_STAGES.values(), ids=HOLDING_STAGES)
def test_a_pod_has_its_share_until_it_has_ended(
    stage: Callable[[], World], after: Callable[[World], None]
) -> None:
    world = stage()
    decide(world)
    after(world)
    submit(world, "uid-2", priority="high")
    submit(world, "uid-3", priority="high")
    assert started_on(world) == {"uid-2": 1}, "the first card has a high-priority pod"
    end(world)
    assert started_on(world) == {"uid-3": 0}


def test_a_resume_by_hand_does_not_restore_a_share() -> None:
    world = STAGES["stopped by its user"]()
    for uid in ("uid-2", "uid-3"):
        submit(world, uid, priority="high")
    assert started_on(world) == {"uid-2": 1}
    end(world)
    assert started_on(world) == {"uid-3": 0}
    world.raw["spec"]["runPolicy"]["suspend"] = False
    world.show()
    claims = world.planner.cluster.ledger.claims_on(["n"])
    assert "uid-1" not in {claim.job for claim in claims}
    step = decide(world)["uid-1"]
    assert isinstance(step, Suspend)
    assert step.state.reason == names.REASON_SHARE_REFUSED


def test_an_ended_pod_that_still_exists_has_no_share() -> None:
    world = STAGES["deleted"]()
    submit(world, "uid-2", priority="high")
    submit(world, "uid-3", priority="high")
    assert started_on(world) == {"uid-2": 1}
    world.pods["pod-0"]["status"] = {"phase": "Failed"}
    show_newer_version(world)
    assert started_on(world) == {"uid-3": 0}


@pytest.mark.parametrize("gone", [False, True], ids=["stopped", "deleted"])
def test_the_memory_of_a_pod_is_not_planned_twice(*, gone: bool) -> None:
    most = f"{MEMORY * 3 // 4}Mi"
    world = started(memory=most, min_share="0")
    world.create()
    world.reserve()
    assert isinstance(world.step(), Pin)
    bind(world)
    world.reason()
    if gone:
        world.planner.cluster.forget_job("uid-1")
    else:
        card = slot("n", 0, card="GPU-0", sharers=(CardSharer("pod-0", evict=True),))
        world.planner.cluster.observe_card(None, card)
        world.step()
    terminate(world)
    submit(world, "uid-2", memory=most, min_share="0")
    submit(world, "uid-3", memory=most, min_share="0")
    assert started_on(world) == {"uid-2": 1}
    remove(world)
    assert started_on(world) == {"uid-3": 0}


def test_a_pod_of_another_namespace_takes_nothing_from_a_job_that_it_names_as_its_owner() -> None:
    world = placed()
    raw = world.pods["pod-0"] | {}
    raw["metadata"] = {**raw["metadata"], "namespace": "x", "uid": "foreign"}
    raw["spec"] = {**raw["spec"], "nodeName": "elsewhere"}
    world.pods["foreign"] = raw
    world.see("foreign")
    submit(world, "uid-2", priority="high")
    submit(world, "uid-3", priority="high")
    assert started_on(world) == {"uid-2": 1}


# --- gangs with a worker that has ended -----------------------------------------------------------


def two_placed() -> World:
    """Two high-priority workers on the cards of one node."""
    world = started(replicas=2, priority="high")
    for index in range(2):
        assert not world.create(index)
    world.reserve()
    assert isinstance(world.step(), Pin)
    for index in range(2):
        bind(world, index)
    assert world.reason() == names.REASON_PLACED
    return world


def two_placed_and_one_ended() -> World:
    """The same two workers; the first has ended."""
    world = two_placed()
    world.pods["pod-0"]["status"] = {"phase": "Succeeded"}
    show_newer_version(world)
    return world


def lose_the_node(world: World) -> None:
    """Replace the node by a new node."""
    cluster = world.planner.cluster
    cluster.observe_node(plain_node("n", cards=2), None)
    cluster.observe_node(None, plain_node("m", cards=2))
    for number in range(2):
        cluster.observe_card(None, slot("m", number))


@pytest.mark.parametrize("workers", [2, 1], ids=["as many as planned", "fewer by an edit"])
def test_a_worker_is_planned_again_although_an_ended_worker_has_lost_its_node(workers: int) -> None:
    world = two_placed_and_one_ended()
    last = workers - 1  # it is removed and created again
    remove(world, last)
    if workers == 1:
        world.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
        world.show()
        remove(world, 1)
    assert not world.create(last)
    lose_the_node(world)
    step = world.step()
    assert isinstance(step, Replan)
    assert step.plan.assignment[ReplicaKey("worker", last)] == "m"
    assert len(step.plan.slots) == workers


def test_a_job_continues_when_the_card_of_an_ended_worker_has_a_problem() -> None:
    world = two_placed_and_one_ended()
    unhealthy = slot("n", 0, card="GPU-0", healthy=False, trouble="it fell off the bus")
    world.planner.cluster.observe_card(None, unhealthy)
    assert world.reason() == names.REASON_PLACED
    unhealthy = slot("n", 1, card="GPU-1", healthy=False, trouble="it fell off the bus")
    world.planner.cluster.observe_card(None, unhealthy)
    assert isinstance(world.step(), Suspend)


def test_a_pod_that_is_bound_to_an_unplanned_node_counts_on_that_node() -> None:
    world = reserved()
    assert isinstance(world.step(), Pin)
    cluster = world.planner.cluster
    cluster.observe_node(None, plain_node("m", cards=2))
    for number in range(2):
        cluster.observe_card(None, slot("m", number))
    world.pods["pod-0"]["spec"]["nodeName"] = "m"
    world.pods["pod-0"]["status"] = {"phase": "Running"}
    show_newer_version(world)
    assert ("m", 0) in cluster.claim_tracker.cards.demand.all()
    (high,) = [
        claim for claim in cluster.ledger.claims_on(["m"]) if has_priority(claim.requests, 0)
    ]
    assert high.job == "uid-1"


# --- the pods that reserve cards ------------------------------------------------------------------


def test_a_reservation_deleted_by_hand_is_recreated_before_any_job_starts() -> None:
    world = reserved()
    assert due(world) == []
    world.planner.cluster.observe_pod(reservation("n", 0), None)
    assert free(world) == 1, "the plan keeps the GPU"
    assert world.reason() == names.REASON_WAITING_FOR_CARD
    assert due(world) == [Reserve(HERE, ())]
    show_reservation(world, uid="second")
    assert world.reason() == names.REASON_WAITING_FOR_CARD, "the agent only saw the first pod"
    world.planner.cluster.observe_card(None, slot("n", 0, card="GPU-1", reservation="second"))
    assert isinstance(world.step(), Pin)


ENDING = {"is being deleted": {"deleting": True}, "has ended": {"phase": "Failed"}}


@pytest.mark.parametrize("fields", ENDING.values(), ids=ENDING)
def test_no_job_starts_on_a_card_while_its_reservation_ends(fields: dict[str, object]) -> None:
    world = reserved()
    pod = show_reservation(world, **fields)
    assert world.reason() == names.REASON_WAITING_FOR_CARD
    assert due(world) == ([] if pod.deleting else [Unreserve(HERE, pod)])


def test_a_reservation_lost_while_a_job_runs_is_recreated_and_the_job_continues() -> None:
    world = placed()
    assert due(world) == []
    world.planner.cluster.observe_pod(reservation("n", 0), None)
    assert free(world) == 1
    assert decide(world) == {}
    assert due(world) == [Reserve(HERE, ())]


@pytest.mark.parametrize("after", [lambda world: None, restart], ids=["no restart", "a restart"])
@pytest.mark.parametrize("stage", HOLDING_STAGES.values(), ids=HOLDING_STAGES)
def test_a_lost_reservation_of_a_pod_without_a_plan_is_recreated(
    stage: Callable[[], World], after: Callable[[World], None]
) -> None:
    world = stage()
    decide(world)
    assert due(world) == []
    world.planner.cluster.observe_pod(reservation("n", 0), None)
    after(world)
    decide(world)
    assert free(world) == 1, "the pod still uses its GPU"
    assert due(world) == [Reserve(HERE, ())]
    end(world)
    decide(world)
    assert free(world) == 2


def lose_reservation(world: World) -> None:
    """Let a user delete a reservation pod, and finish the steps that follow."""
    world.planner.cluster.observe_pod(reservation("n", 0), None)
    world.planner.cluster.observe_card(None, slot("n", 0))
    assert decide(world) == {}
    for step in due(world):
        world.planner.cards.finish(step, world.now)


def reserve_anew(world: World, uid: str) -> None:
    """Show a new reservation pod with the card of the previous pod, and report the card."""
    show_reservation(world, uid=uid)
    world.planner.cluster.observe_card(None, slot("n", 0, card="GPU-0", reservation=uid))


def test_a_job_stops_if_its_card_cannot_be_reserved_again_within_60_seconds() -> None:
    world = placed()
    lose_reservation(world)
    pending = show_reservation(world, uid="second", node_name="", pinned_to="n", phase="Pending")
    assert decide(world) == {}, "another pod has the GPU"
    assert world.planner.alarms.next() == world.now + 60
    world.now += 59
    assert decide(world) == {}
    world.now += 1
    step = world.step()
    assert isinstance(step, Suspend)
    assert (step.state.reason, list(step.state.excluded)) == (names.REASON_CARD_LOST, ["n"])
    remove(world)
    decide(world)
    assert due(world) == [Unreserve(HERE, pending)], "no job needs the GPU any more"


def test_temporarily_lost_reservations_cost_a_job_nothing_however_often() -> None:
    world = placed()
    for number in range(5):
        lose_reservation(world)
        world.now += 59
        assert decide(world) == {}
        reserve_anew(world, uid=f"uid-{number}")
        assert decide(world) == {}
        world.planner.cluster.observe_pod(reservation("n", 0, uid=f"uid-{number}"), None)
        reserve_anew(world, uid=f"uid-n-{number}")
        world.now += 3600
        assert decide(world) == {}


def test_the_next_controller_restarts_the_count_of_an_unreserved_card() -> None:
    world = placed()
    lose_reservation(world)
    world.now += 59
    restart(world)
    assert decide(world) == {}
    world.now += 59
    assert decide(world) == {}
    world.now += 1
    assert isinstance(decide(world)["uid-1"], Suspend)


def test_a_late_deletion_of_a_reservation_pod_does_not_delete_the_next() -> None:
    world = reserved()
    second = show_reservation(world, uid="second")
    world.planner.cluster.observe_card(None, slot("n", 0, card="GPU-0", reservation="second"))
    world.planner.cluster.observe_pod(reservation("n", 0), None)
    assert due(world) == []
    assert isinstance(world.step(), Pin)
    world.planner.cluster.observe_pod(second, None)
    assert due(world) == [Reserve(HERE, ())]


def test_a_card_is_reserved_until_the_last_pod_of_a_job_that_was_deleted_has_gone() -> None:
    world = STAGES["deleted"]()
    assert due(world) == []
    remove(world)
    assert due(world) == [Unreserve(HERE, reservation("n", 0))]


def test_a_job_deleted_while_its_card_is_being_reserved_leaves_nothing() -> None:
    world = gated()
    (step,) = due(world)
    world.planner.cluster.forget_job("uid-1")
    remove(world)
    pod = show_reservation(world)
    assert due(world) == [Unreserve(HERE, pod)]
    world.planner.cards.finish(step, world.now)
    world.planner.cluster.observe_pod(pod, None)
    assert due(world) == []
    assert free(world) == 2


def test_a_failed_reservation_that_is_no_longer_needed_wakes_no_job() -> None:
    world = gated()
    (step,) = due(world)
    world.planner.cards.finish(step, world.now)
    world.planner.cluster.forget_job("uid-1")
    assert due(world) == []
    assert not world.planner.cards.pending


def test_a_completed_step_is_not_repeated_before_it_can_have_been_seen() -> None:
    world = gated()
    (step,) = due(world)
    world.planner.cards.finish(step, world.now)
    assert due(world) == []
    assert [*world.planner.cards.pending.values()] == [world.now + 1]
    world.now += 1
    assert due(world) == [step], "the step had no effect"


# --- reports of agents, and nodes -----------------------------------------------------------------


def test_a_slot_that_is_no_longer_reported_gets_no_job_and_stops_no_job() -> None:
    world = placed()
    for number in range(2):
        world.planner.cluster.observe_card(slot("n", number), None)
    submit(world, "uid-2", min_share="0")
    assert decide(world) == {}
    world.planner.cluster.observe_card(None, slot("n", 0, card="GPU-0"))
    assert started_on(world) == {"uid-2": 0}


def test_pods_wait_while_their_slot_is_not_reported() -> None:
    world = reserved()
    world.planner.cluster.observe_card(slot("n", 0), None)
    assert not isinstance(world.step(), Pin)


def test_a_node_that_returns_has_the_same_cards_in_use() -> None:
    world = placed()
    node = plain_node("n", cards=2)
    before = world.planner.cluster.ledger.claims()
    world.planner.cluster.observe_node(node, None)
    submit(world, "uid-2", priority="high")
    submit(world, "uid-3", priority="high")
    assert decide(world) == {}
    assert due(world) == []
    world.planner.cluster.observe_node(None, node)
    assert started_on(world) == {"uid-2": 1}
    after = world.planner.cluster.ledger.claims()
    assert before.items() <= after.items()


def test_nothing_is_reserved_on_a_removed_node() -> None:
    world = planned()
    node = plain_node("n", cards=2)
    (step,) = due(world)
    world.planner.cards.finish(step, world.now)
    world.planner.cluster.observe_node(node, None)
    assert due(world) == []
    assert not world.planner.cards.pending
    world.planner.cluster.observe_node(None, node)
    decide(world)
    assert due(world) == [step]


# --- a gang ---------------------------------------------------------------------------------------


def test_a_replacement_gets_the_slot_of_the_lost_pod() -> None:
    world = two_placed()
    remove(world, 1)
    assert due(world) == [], "the plan keeps the card"
    submit(world, "uid-2", priority="high")
    assert decide(world) == {}
    assert not world.create(1)
    requests = world.pods["pod-1"]["spec"]["containers"][0]["resources"]["requests"]
    (tracked,) = [
        tracked for tracked in world.planner.cluster.jobs.values() if tracked.job.uid == "uid-1"
    ]
    assert tracked.plan is not None
    assert requests == {f"kfext.dev/gpu-{tracked.plan.slots[replace(WORKER, index=1)]}": "50"}
    step = decide(world)["uid-1"]
    assert isinstance(step, Pin)
    assert [(pod.uid, node) for pod, node in step.pins] == [("pod-1", "n")]
