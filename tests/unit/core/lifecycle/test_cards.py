"""Why a job that shares GPUs waits, and why it is stopped."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.ledger.cards import as_sharing
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.cards import (
    IN_KUEUE,
    before_cards,
    ungate_unplaced,
    use_to_store,
    without_card,
    without_share,
)
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.running import running_step
from kfext.core.lifecycle.situation import CardView, Refused, Situation
from kfext.core.lifecycle.steps import DeleteUnbound, ForgetPlan, Step, Suspend, Ungate, Wait
from kfext.model.gpu import GpuShare, resource_of
from kfext.model.job_state import EXCLUDED_SECONDS, JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.shared_gpu import CardSharer
from tests.builders import JobBuilder, job, pod, situation_of
from tests.gpu_builders import sharing, sharing_node, slot

NOW = 1000.0
KEYS = [ReplicaKey("worker", index) for index in range(2)]
PLAN = Plan(
    "uid-1",
    1,
    dict.fromkeys(KEYS, "n"),
    shares={"worker": GpuShare(50, high=True)},
    slots={KEYS[0]: 0, KEYS[1]: 1},
)
NO_SLOTS = replace(PLAN, slots={})


def running(builder: JobBuilder, plan: Plan | None = PLAN, **more: Any) -> Situation:
    """A job that is not suspended, as the planner sees it; its settings are on its templates."""
    for spec in builder.raw["spec"]["pytorchReplicaSpecs"].values():
        annotations = dict(builder.raw["metadata"]["annotations"])
        spec["template"]["metadata"] = {"annotations": annotations}
    return situation_of(as_sharing(builder.build(), plan), plan=plan, now=NOW, **more)


def gang() -> JobBuilder:
    return sharing(replicas=2, priority="high")


def part(index: int, *, slot: int | None = None, units: int = 50, **more: Any) -> Pod:
    """A gated pod with a GPU share, by default the planned share."""
    gated = pod(sharing(replicas=2).build(), "worker", index, gated=True, **more)
    return replace(gated, requests={resource_of(index if slot is None else slot): units, "pods": 1})


def edited() -> JobBuilder:
    return gang().annotated(names.GPU_SHARE, "0.6")


GANG = (part(0), part(1))
BOUND = pod(sharing(replicas=2).build(), "worker", 0, bound="n")
NEEDS_NONE: dict[str, Situation] = {
    "it shares none": running(job().worker(1, gpus=1), None),
    "it has its parts": running(gang()),
    "Kueue started it with its parts": running(gang().queued_by_kueue()),
    "its share was edited while it runs": running(edited(), pods=[BOUND]),
    "its share was edited before its pod is bound": running(
        edited(), pods=[replace(BOUND, node_name="", pinned_to="n")]
    ),
    "its share was edited, and Kueue starts it": running(edited().queued_by_kueue()),
    "no replica shares any": running(sharing(replicas=0, priority="high").master(), NO_SLOTS),
}


@pytest.mark.parametrize("situation", NEEDS_NONE.values(), ids=NEEDS_NONE)
def test_a_job_that_has_its_parts_or_needs_none_continues(situation: Situation) -> None:
    assert without_share(situation) is None


def test_a_job_with_a_share_edited_before_its_start_is_placed_again() -> None:
    for pods in ((), GANG):
        step = without_share(running(edited(), pods=pods))
        message = stopped(step, names.REASON_SHARE_EDITED, excluded=False)
        assert message.startswith("kfext.dev/gpu-share of worker is 0.5 and was edited to 0.6")


def test_replicas_with_slots_of_one_number_do_not_go_to_one_node() -> None:
    plan = replace(PLAN, assignment={KEYS[0]: "n", KEYS[1]: "gone"}, slots=dict.fromkeys(KEYS, 0))
    pods = (part(0, slot=0, units=50), part(1, slot=0, units=30))
    step = running_step(running(gang(), plan, pods=pods), Ledger([sharing_node("n")]))
    assert isinstance(step, Suspend)
    assert "two of its pods would be in slot 0 of n" in step.state.message


RESUMED: dict[str, Plan | None] = {"no plan": None, "a plan without parts": NO_SLOTS}


@pytest.mark.parametrize("plan", RESUMED.values(), ids=RESUMED)
def test_a_job_without_its_parts_goes_back_to_the_queue_and_does_not_back_off(
    plan: Plan | None,
) -> None:
    step = next_step(running(gang(), plan), Ledger([sharing_node("n")]))
    assert isinstance(step, Suspend)
    assert (step.state.reason, step.state.strikes) == (names.REASON_SHARE_REFUSED, 0)
    assert (step.state.retry_at, step.state.excluded) == (0.0, {})


SUSPENDED: dict[str, tuple[Plan | None, tuple[Pod, ...], type[Step]]] = {
    "its last pod is gone": (PLAN, (), ForgetPlan),
    "its pods have ended": (PLAN, tuple(replace(pod, phase="Failed") for pod in GANG), ForgetPlan),
    "its pods still end": (PLAN, GANG, Wait),
    "without parts the plan is checked once pods exist": (NO_SLOTS, (), Wait),
    "it has no plan any more": (None, (), Wait),
}


@pytest.mark.parametrize("managed", [True, False], ids=["opted in", "opted out"])
@pytest.mark.parametrize(("plan", "pods", "want"), SUSPENDED.values(), ids=SUSPENDED)
def test_the_plan_of_parts_is_deleted_when_another_client_suspends_the_job(
    plan: Plan | None, pods: tuple[Pod, ...], want: type[Step], *, managed: bool
) -> None:
    situation = running(gang().suspended(), plan, pods=pods, managed=managed)
    step = next_step(situation, Ledger([sharing_node("n")]))
    assert isinstance(step, want)
    if isinstance(step, ForgetPlan):
        assert (step.state.generation, step.state.suspended_at) == (PLAN.generation, NOW)


def test_a_job_with_a_plan_that_cannot_be_deleted_stays_suspended() -> None:
    shares_no_more = job().worker(2, gpus=1).suspended()
    refused = {ForgetPlan.__name__: Refused("denied", 100.0)}
    step = next_step(running(shares_no_more, refused=refused), Ledger([sharing_node("n")]))
    assert isinstance(step, Wait)
    assert (step.phase, step.again) == (names.SUSPENDED, 100.0)
    assert step.verdict is not None
    assert step.verdict.reason == names.REASON_WRITE_REFUSED


def test_a_job_that_kueue_started_without_parts_waits_with_the_reason() -> None:
    step = next_step(running(gang().queued_by_kueue(), None), Ledger([sharing_node("n")]))
    assert isinstance(step, Wait)
    assert (step.phase, step.verdict) == (names.SUSPENDED, IN_KUEUE)


BY_KUEUE: dict[str, tuple[JobBuilder, dict[str, Any], str | None, str]] = {
    "it was labelled before kfext's webhook": (
        gang().suspended(),
        {},
        names.SUSPENDED,
        IN_KUEUE.reason,
    ),
    "it was labelled after kfext's webhook": (gang().held(), {}, names.SUSPENDED, IN_KUEUE.reason),
    "the namespace did not opt in: not kfext's to show": (
        gang().suspended(),
        {"managed": False},
        None,
        IN_KUEUE.reason,
    ),
    "it has whole GPUs": (
        job().worker(1, gpus=1).suspended(),
        {},
        names.SUSPENDED,
        names.REASON_SUSPENDED_BY_USER,
    ),
}


@pytest.mark.parametrize(("builder", "more", "phase", "reason"), BY_KUEUE.values(), ids=BY_KUEUE)
def test_a_job_in_a_kueue_queue_shows_the_problem_before_it_uses_quota(
    builder: JobBuilder, more: dict[str, Any], phase: str | None, reason: str
) -> None:
    queued = as_sharing(builder.queued_by_kueue().build(), None)
    step = next_step(situation_of(queued, now=NOW, **more), Ledger([sharing_node("n")]))
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert (step.phase, step.verdict.reason) == (phase, reason)


EDITED: dict[str, tuple[JobBuilder, str]] = {
    "it has low priority and two ranks": (sharing(replicas=2), "a job of 2 pods cannot"),
    "it names its node": (
        job().annotated(names.GPU_SHARE, "0.5").worker(1, gpus=1, spec={"nodeName": "n"}),
        "names its node (nodeName: 'n')",
    ),
}


@pytest.mark.parametrize(("builder", "why"), EDITED.values(), ids=EDITED)
def test_a_job_edited_so_that_it_cannot_share_gpus_waits_for_another_edit(
    builder: JobBuilder, why: str
) -> None:
    queued = as_sharing(builder.suspended().held().build(), None)
    step = next_step(situation_of(queued, now=NOW), Ledger([sharing_node("n")]))
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert (step.phase, step.verdict.reason) == (names.QUEUED, names.REASON_SHARE_REFUSED)
    assert why in step.verdict.message


LOST = (("n", 0),)
STOPS: dict[str, tuple[CardView, str, str]] = {
    "it must leave": (CardView(evicted=LOST), names.REASON_EVICTED, "slot 0 of n"),
    "it has another card": (CardView(lost=LOST), names.REASON_CARD_LOST, "slot 0 of n"),
    "both": (CardView(evicted=LOST, lost=(("n", 1),)), names.REASON_EVICTED, "slot 0 of n"),
}


def stopped(step: Step | None, reason: str, *, excluded: bool) -> str:
    """The message of a stop that has counted as a strike."""
    assert isinstance(step, Suspend)
    state = step.state
    assert (state.reason, state.suspended_at) == (reason, NOW)
    assert state.excluded == ({"n": NOW + EXCLUDED_SECONDS} if excluded else {})
    return state.message


@pytest.mark.parametrize(("cards", "reason", "where"), STOPS.values(), ids=STOPS)
def test_a_job_stops_where_it_must_not_continue(cards: CardView, reason: str, where: str) -> None:
    step = without_card(running(gang(), cards=cards, pods=[BOUND]))
    assert where in stopped(step, reason, excluded=False)


MIG, XID = "it is split by MIG", "it reported Xid 79"
TROUBLES: dict[str, tuple[CardView, str]] = {
    "one card": (
        CardView(lost=LOST, troubles={LOST[0]: MIG}),
        f"slot 0 of n cannot be shared: {MIG}",
    ),
    "two cards with one problem": (
        CardView(lost=(*LOST, ("n", 1)), troubles={LOST[0]: MIG, ("n", 1): MIG}),
        f"slot 0 of n and slot 1 of n cannot be shared: {MIG}",
    ),
    "two cards with two problems": (
        CardView(lost=(*LOST, ("n", 1)), troubles={LOST[0]: MIG, ("n", 1): XID}),
        f"slot 0 of n cannot be shared: {MIG}; slot 1 of n cannot be shared: {XID}",
    ),
    "also a card that it did not use": (
        CardView(lost=(*LOST, ("n", 1)), troubles={LOST[0]: MIG}),
        f"slot 0 of n cannot be shared: {MIG}; the GPU of slot 1 of n is not the GPU that it used",
    ),
}


@pytest.mark.parametrize(("cards", "message"), TROUBLES.values(), ids=TROUBLES)
def test_the_reason_why_a_card_cannot_be_shared_is_shown(cards: CardView, message: str) -> None:
    step = next_step(running(gang(), cards=cards, pods=[BOUND]), Ledger([sharing_node("n")]))
    assert stopped(step, names.REASON_CARD_LOST, excluded=False) == message


BEFORE: dict[str, tuple[Pod, ...]] = {"no pod exists": (), "all pods wait": GANG}


@pytest.mark.parametrize("pods", BEFORE.values(), ids=BEFORE)
def test_a_start_on_a_card_that_cannot_be_shared_fails_and_is_retried_only_later(
    pods: tuple[Pod, ...],
) -> None:
    cards = CardView(unready=LOST, lost=LOST, troubles={LOST[0]: MIG})
    step = next_step(running(gang(), cards=cards, pods=pods), Ledger([sharing_node("n")]))
    assert MIG in stopped(step, names.REASON_CARD_LOST, excluded=True)
    assert isinstance(step, Suspend)
    assert (step.state.strikes, step.state.retry_at) == (1, NOW + 15)


def test_a_job_with_ended_pods_is_not_stopped_for_its_card() -> None:
    ended = replace(pod(sharing().build(), "worker", 0, bound="n"), phase="Succeeded")
    cards = CardView(lost=LOST, troubles={LOST[0]: MIG})
    assert without_card(running(gang(), cards=cards, pods=[ended])) is None


def test_a_job_remembers_the_jobs_that_it_had_to_leave() -> None:
    state = JobState(apart=("uid-8", "uid-9"))
    cards = CardView(evicted=LOST, rivals=("uid-7", "uid-9"))
    step = without_card(running(gang(), state=state, cards=cards))
    assert isinstance(step, Suspend)
    assert step.state.apart == ("uid-8", "uid-9", "uid-7")
    back = running(gang(), cards=CardView(shunned=(("m", 0),)))
    assert (back.limits.closed, back.excluded) == ((("m", 0),), ())


UNRESERVED: dict[str, dict[str, Any]] = {
    "the agent has not seen its reservation": {"cards": CardView(unready=LOST)},
    "its reservation was just deleted": {"unreserved": {LOST[0]: 59.0}},
    "two reservations were lost in turn": {"unreserved": {LOST[0]: 30.0, ("n", 1): 59.0}},
    "none of its pods has a GPU yet": {"unreserved": {LOST[0]: 600.0}, "pods": GANG},
}


@pytest.mark.parametrize("facts", UNRESERVED.values(), ids=UNRESERVED)
def test_a_job_continues_while_its_cards_may_be_unchanged(facts: dict[str, Any]) -> None:
    assert without_card(running(gang(), **{"pods": [BOUND], **facts})) is None


def test_a_job_stays_on_an_unreserved_card_no_longer_than_the_bind_timeout() -> None:
    unreserved = {("m", 1): 59.0, LOST[0]: 60.0}
    step = without_card(running(gang(), pods=[BOUND], unreserved=unreserved))
    message = stopped(step, names.REASON_CARD_LOST, excluded=True)
    assert "slot 0 of n" in message
    assert "within 60 s" in message
    assert "slot 1 of m" not in message


def test_a_job_on_an_unreserved_card_is_checked_again_in_time() -> None:
    bound = [pod(sharing(replicas=2).build(), "worker", index, bound="n") for index in range(2)]
    situation = running(gang(), pods=bound, unreserved={LOST[0]: 20.0, ("n", 1): 50.0})
    step = running_step(situation, Ledger([sharing_node("n")]))
    assert isinstance(step, Wait)
    assert (step.phase, step.again) == (names.PLACED, 10.0)


@pytest.mark.parametrize(("strikes", "backoff"), [(0, 15), (1, 30), (9, 300)], ids=str)
def test_a_job_that_leaves_a_card_backs_off_longer_each_time(strikes: int, backoff: int) -> None:
    state = JobState(strikes=strikes, excluded={"other": NOW + 9})
    step = without_card(running(gang(), state=state, cards=CardView(evicted=LOST)))
    assert isinstance(step, Suspend)
    assert (step.state.strikes, step.state.retry_at) == (strikes + 1, NOW + backoff)
    assert step.state.excluded == {"other": NOW + 9}


@pytest.mark.parametrize(("rivals", "backoff"), [(0, 15), (1, 30), (4, 240), (20, 300)], ids=str)
def test_a_job_that_leaves_card_after_card_backs_off_longer_although_it_was_bound(
    rivals: int, backoff: int
) -> None:
    state = JobState(apart=tuple(f"uid-{number}" for number in range(rivals)))
    cards = CardView(evicted=LOST, rivals=("uid-next",))
    step = without_card(running(gang(), state=state, cards=cards))
    assert isinstance(step, Suspend)
    assert step.state.retry_at == NOW + backoff


def test_a_gang_starts_once_its_gpus_are_reserved() -> None:
    assert before_cards(running(gang(), pods=GANG), GANG) is None


def test_a_gang_without_reserved_gpus_waits_for_the_agent() -> None:
    situation = running(gang(), pods=GANG, cards=CardView(unready=LOST), waited=20.0)
    step = before_cards(situation, GANG)
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert (step.phase, step.verdict.reason) == (names.GATED, names.REASON_WAITING_FOR_CARD)
    assert "slot 0 of n" in step.verdict.message
    assert step.again == situation.placement.bind_timeout - 20.0


def test_a_gang_waits_for_the_agent_no_longer_than_the_bind_timeout() -> None:
    situation = running(gang(), pods=GANG, cards=CardView(unready=LOST), waited=60.0)
    message = stopped(before_cards(situation, GANG), names.REASON_CARD_TIMEOUT, excluded=True)
    assert "none within 60 s" in message


def test_a_pod_that_was_long_at_the_gate_has_the_full_bind_timeout_once_it_has_a_place() -> None:
    situation = running(gang(), pods=GANG, cards=CardView(unready=LOST), waited=400.0)
    step = before_cards(replace(situation, clocks=replace(situation.clocks, waited=1.0)), GANG)
    assert isinstance(step, Wait)
    assert step.again == situation.placement.bind_timeout - 1.0


ODD: dict[str, Callable[[], Pod]] = {
    "a different slot": lambda: part(1, slot=0),
    "a different part": lambda: part(1, units=60),
    "a whole GPU": lambda: replace(part(1), requests={names.NATIVE_GPU: 1}),
    "parts of two GPUs": lambda: replace(
        part(1), requests={resource_of(0): 50, resource_of(1): 50}
    ),
    "a part for a replica that is not in the plan": lambda: part(2),
}


@pytest.mark.parametrize("odd_pod", ODD.values(), ids=ODD)
def test_pods_with_a_part_other_than_planned_do_not_start(odd_pod: Callable[[], Pod]) -> None:
    gated = (part(0), odd_pod())
    step = before_cards(running(gang(), pods=gated), gated)
    message = stopped(step, names.REASON_SHARE_REFUSED, excluded=False)
    assert message == "1 pod with another GPU share than planned"


def test_pods_of_a_job_without_parts_are_not_checked() -> None:
    builder = job().worker(1, gpus=1)
    gated = [pod(builder.build(), "worker", 0, gated=True)]
    assert before_cards(running(builder, replace(NO_SLOTS, shares={})), gated) is None


MEASURED: dict[str, tuple[dict[str, int], list[dict[str, Any]], dict[str, int]]] = {
    "no replica is measured": ({}, [{}, {}], {}),
    "one replica is not measured yet": ({}, [{"busy": 300}, {}], {}),
    "the busiest replica counts": ({}, [{"busy": 300}, {"busy": 700}], {"worker": 700}),
    "not measured again yet after a restart": ({"worker": 500}, [{}, {}], {"worker": 500}),
    "no agent shows them": ({"worker": 500}, [], {"worker": 500}),
    "more": ({"worker": 500}, [{"busy": 510}, {"busy": 0}], {"worker": 510}),
    "a little less": ({"worker": 500}, [{"busy": 451}, {"busy": 0}], {"worker": 500}),
    "clearly less": ({"worker": 500}, [{"busy": 450}, {"busy": 0}], {"worker": 450}),
    "one does not report": ({"worker": 500}, [{"busy": 500}, {"unhooked": "HookFailed"}], {}),
    "the record of other types stays": (
        {"ps": 1},
        [{"busy": 2}, {"busy": 2}],
        {"ps": 1, "worker": 2},
    ),
}


@pytest.mark.parametrize(("before", "sharers", "want"), MEASURED.values(), ids=MEASURED)
def test_the_remembered_use_of_gpus(
    before: dict[str, int], sharers: list[dict[str, Any]], want: dict[str, int]
) -> None:
    pods = tuple(replace(part(index), uid=f"pod-{index}") for index in range(2))
    parts = tuple(
        (slot("n", n), CardSharer(f"pod-{n}", **fields)) for n, fields in enumerate(sharers)
    )
    view, state = CardView(parts=parts), JobState(busy=before)
    result = use_to_store(running(gang(), pods=pods, cards=view, state=state))
    assert result == want
    again = replace(state, busy=result)
    assert use_to_store(running(gang(), pods=pods, cards=view, state=again)) == want


def test_a_pod_that_ends_leaves_the_use_of_gpus_unknown() -> None:
    ends = replace(part(0), uid="pod-0", deleting=True)
    parts = ((slot("n"), CardSharer("pod-0", busy=300)),)
    view = CardView(parts=parts)
    assert use_to_store(running(gang(), pods=(ends,), cards=view)) == {}


def test_pods_with_parts_of_gpus_are_deleted_where_other_pods_are_ungated() -> None:
    whole = pod(job().worker(gpus=1).build(), "worker", 0, gated=True)
    assert ungate_unplaced(JobState(), [whole]) == Ungate((whole,))
    step = ungate_unplaced(JobState(), [part(0), whole])
    assert isinstance(step, DeleteUnbound)
    assert step.pods == (part(0),)
