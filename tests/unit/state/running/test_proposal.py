"""Proposals: stages, and restores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.policy import Mode, PolicyChoice
from kfext.model.qos import QoS
from kfext.state.running.proposal import (
    Measure,
    Proposal,
    Rank,
    Size,
    arbitrate,
    in_stages,
    restore_proposal,
    value_of,
)
from tests.unit.state.running.jobs import job, pod, proposal, signals


def test_shrinking_pods_come_before_growing_pods() -> None:
    training_job = job("j", pod("a", limit=100), pod("b", limit=300), pod("c", request=100))
    a, b, c = Size("a", 200), Size("b", 200), Size("c", request=10)
    assert in_stages(training_job, [a, b, c]) == ((b, c), (a,))
    assert in_stages(training_job, [a]) == ((a,),)
    assert in_stages(training_job, [Size("c", request=370), b]) == ((b,), (Size("c", request=370),))


def test_a_proposal_costs_the_pods_that_it_writes() -> None:
    assert proposal(pods=3).cost == 3


def test_the_users_cpu_is_restored() -> None:
    training_job = job(
        "j",
        pod("capped", limit=100, user_limit=400),
        pod("raised", limit=500, user_limit=400),
        pod("favoured", request=370, user_request=20),
        pod("gave-way", request=10, user_request=20),
        pod("as-written", limit=400, user_limit=400),
        pod("without"),
    )
    back = restore_proposal("resize", training_job, reason="why", disabled={"resize"})
    assert back is not None
    assert back.stages == (
        (Size("raised", 400), Size("favoured", request=20)),
        (Size("capped", 400), Size("gave-way", request=20)),
    )
    assert (back.rank, back.measure, back.reason) == (Rank.RESTORE, None, "why")
    assert back.disabled == {"resize"}


def test_a_guaranteed_pod_regains_its_request_as_well() -> None:
    training_job = job(
        "j", pod("a", request=100, limit=100, user_request=400, user_limit=400, qos=QoS.GUARANTEED)
    )
    back = restore_proposal("shift", training_job, reason="why")
    assert back is not None
    assert back.stages == ((Size("a", limit=400, request=400),),)


def test_pods_with_the_users_cpu_need_no_restore() -> None:
    training_job = job("j", pod("a", limit=400, user_limit=400), pod("b"))
    assert restore_proposal("resize", training_job, reason="why") is None


def test_a_policy_is_disabled_even_without_a_restore() -> None:
    training_job = job("j", pod("a", limit=400, user_limit=400))
    back = restore_proposal("resize", training_job, reason="why", disabled={"resize"})
    assert back is not None
    assert back.stages == ()
    assert back.disabled == {"resize"}


def test_a_job_is_measured_by_its_rate_or_its_use() -> None:
    training_job = job("j", pod("a", use=300), rate=2.5)
    assert value_of(training_job, Measure.RATE) == 2.5
    assert value_of(training_job, Measure.USE) == 300


BOTH = {"resize": PolicyChoice(), "shift": PolicyChoice()}
EACH = {rank: proposal(f"{rank.name}", rank=rank) for rank in Rank}


def test_X2_a_harmful_change_is_reverted_before_any_resize() -> None:
    seen = signals(*(job(each.job) for each in EACH.values()))
    chosen = arbitrate(reversed(EACH.values()), seen)
    assert [picked.rank.name for picked in chosen.act] == [
        "RESTORE",
        "DRAIN",
        "RESCUE",
        "PREEMPT",
        "SCALE",
        "MOVE",
        "RESIZE",
    ]


def test_X2_a_job_gets_only_the_first_proposal_in_the_order() -> None:
    resize, back = proposal("j"), proposal("j", rank=Rank.RESTORE)
    assert arbitrate([resize, back], signals(job("j"))).act == (back,)


def test_X2_of_one_rank_the_proposal_with_fewer_pods_comes_first() -> None:
    seen = signals(*(job(uid, policies=BOTH) for uid in "ab"))
    dear, cheap = proposal("a", pods=3), proposal("b", pods=1)
    assert arbitrate([dear, cheap], seen).act == (cheap, dear)
    resize, shift = proposal("a", pods=3), proposal("a", pods=2, policy="shift")
    assert arbitrate([resize, shift], seen).act == (shift,)


def test_a_deleted_job_gets_no_proposal() -> None:
    assert arbitrate([proposal("gone")], signals(job("j"))).act == ()


def test_a_dry_run_blocks_no_change() -> None:
    policies = {"resize": PolicyChoice(Mode.OBSERVE), "shift": PolicyChoice(Mode.ACT)}
    resize, shift = proposal("j", pods=1), proposal("j", pods=2, policy="shift")
    chosen = arbitrate([resize, shift], signals(job("j", policies=policies)))
    assert chosen.act == (shift,)
    assert chosen.observe == (resize,)


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(job("j", mode=Mode.OFF), id="switched off"),
        pytest.param(job("j", policy="shift"), id="not opted in"),
        pytest.param(job("j", disabled=frozenset(["resize"])), id="the policy is disabled"),
        pytest.param(job("j", mode=Mode.OBSERVE), id="dry run"),
    ],
)
def test_a_policy_that_may_not_act_can_only_restore(of: object) -> None:
    seen = signals(of)  # type: ignore[arg-type]
    back = proposal("j", rank=Rank.RESTORE)
    assert arbitrate([proposal("j")], seen).act == ()
    assert arbitrate([proposal("j"), back], seen).act == (back,)


PROPOSALS = st.lists(
    st.builds(
        proposal,
        st.sampled_from("abcd"),
        pods=st.integers(1, 4),
        rank=st.sampled_from(Rank),
        policy=st.sampled_from(["resize", "shift"]),
    )
)


@given(PROPOSALS, st.randoms(use_true_random=False))
def test_X2_no_job_has_two_operations_in_whatever_order_they_are_proposed(
    proposals: list[Proposal], random: object
) -> None:
    seen = signals(*(job(uid, policies=BOTH) for uid in "abcd"))
    act = arbitrate(proposals, seen).act
    assert [picked.job for picked in act].count("a") <= 1
    assert {picked.job for picked in act} == {picked.job for picked in proposals}
    for picked in act:
        assert picked.rank == min(other.rank for other in proposals if other.job == picked.job)
    shuffled = list(proposals)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(map(_class, arbitrate(shuffled, seen).act)) == sorted(map(_class, act))


def _class(picked: Proposal) -> tuple[str, Rank, int, str]:
    """What decides, whatever was proposed first."""
    return (picked.job, picked.rank, picked.cost, picked.policy)


def test_equal_proposals_are_carried_out_in_the_order_of_the_policy() -> None:
    seen = signals(*(job(uid, policies=BOTH) for uid in "ab"))
    alike = [proposal(uid, pods=1, rank=Rank.SCALE, policy="resize") for uid in "ba"]
    assert [picked.job for picked in arbitrate(alike, seen).act] == ["b", "a"]
