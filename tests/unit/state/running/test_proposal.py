"""Proposals: their stages, restores, and the choice of at most one for each job."""

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
from kfext.state.running.signals import JobSignal
from tests.unit.state.running.jobs import job, pod, proposal, signals


def test_shrinking_pods_come_before_growing_pods() -> None:
    training_job = job("j", pod("a", limit=100), pod("b", limit=300), pod("c", request=100))
    a, b, c = Size("a", 200), Size("b", 200), Size("c", request=10)
    assert in_stages(training_job, [a, b, c]) == ((b, c), (a,))
    assert in_stages(training_job, [a]) == ((a,),)
    assert in_stages(training_job, [Size("c", request=370), b]) == ((b,), (Size("c", request=370),))


def test_the_cost_of_a_proposal_is_its_number_of_pod_writes() -> None:
    assert proposal(pods=3).cost == 3


def test_the_users_cpu_is_restored() -> None:
    training_job = job(
        "j",
        pod("capped", limit=100, user_limit=400),
        pod("raised", limit=500, user_limit=400),
        pod("boosted", request=370, user_request=20),
        pod("lowered", request=10, user_request=20),
        pod("as-written", limit=400, user_limit=400),
        pod("never-changed"),
    )
    restore = restore_proposal("resize", training_job, reason="why", disabled={"resize"})
    assert restore is not None
    assert restore.stages == (
        (Size("raised", 400), Size("boosted", request=20)),
        (Size("capped", 400), Size("lowered", request=20)),
    )
    assert (restore.rank, restore.measure, restore.reason) == (Rank.RESTORE, None, "why")
    assert restore.disabled == {"resize"}


def test_a_guaranteed_pod_regains_its_request_as_well() -> None:
    training_job = job(
        "j", pod("a", request=100, limit=100, user_request=400, user_limit=400, qos=QoS.GUARANTEED)
    )
    restore = restore_proposal("shift", training_job, reason="why")
    assert restore is not None
    assert restore.stages == ((Size("a", limit=400, request=400),),)


def test_pods_with_the_users_cpu_need_no_restore() -> None:
    training_job = job("j", pod("a", limit=400, user_limit=400), pod("b"))
    assert restore_proposal("resize", training_job, reason="why") is None


def test_a_policy_is_disabled_even_without_a_restore() -> None:
    training_job = job("j", pod("a", limit=400, user_limit=400))
    restore = restore_proposal("resize", training_job, reason="why", disabled={"resize"})
    assert restore is not None
    assert restore.stages == ()
    assert restore.disabled == {"resize"}


def test_the_value_of_a_measure_is_the_rate_or_the_use_of_the_job() -> None:
    training_job = job("j", pod("a", use=300), rate=2.5)
    assert value_of(training_job, Measure.RATE) == 2.5
    assert value_of(training_job, Measure.USE) == 300


BOTH = {"resize": PolicyChoice(), "shift": PolicyChoice()}
EACH_RANK = [proposal(rank.name, rank=rank) for rank in Rank]


def test_X2_proposals_are_carried_out_in_the_order_of_their_ranks() -> None:
    of_jobs = signals(*(job(ranked.job) for ranked in EACH_RANK))
    chosen = arbitrate(reversed(EACH_RANK), of_jobs)
    assert [acting.rank.name for acting in chosen.act] == [
        "RESTORE",
        "DRAIN",
        "RESCUE",
        "PREEMPT",
        "SCALE",
        "MOVE",
        "RESIZE",
    ]


def test_X2_a_job_gets_only_the_first_proposal_in_the_order() -> None:
    resize, restore = proposal("j"), proposal("j", rank=Rank.RESTORE)
    assert arbitrate([resize, restore], signals(job("j"))).act == (restore,)


def test_X2_of_equal_ranks_the_proposal_with_fewer_pod_writes_comes_first() -> None:
    of_jobs = signals(*(job(uid, policies=BOTH) for uid in "ab"))
    three_pods, one_pod = proposal("a", pods=3), proposal("b", pods=1)
    assert arbitrate([three_pods, one_pod], of_jobs).act == (one_pod, three_pods)
    resize, shift = proposal("a", pods=3), proposal("a", pods=2, policy="shift")
    assert arbitrate([resize, shift], of_jobs).act == (shift,)


def test_a_deleted_job_gets_no_proposal() -> None:
    assert arbitrate([proposal("gone")], signals(job("j"))).act == ()


def test_a_dry_run_blocks_no_change() -> None:
    policies = {"resize": PolicyChoice(Mode.OBSERVE), "shift": PolicyChoice(Mode.ACT)}
    resize, shift = proposal("j", pods=1), proposal("j", pods=2, policy="shift")
    chosen = arbitrate([resize, shift], signals(job("j", policies=policies)))
    assert chosen.act == (shift,)
    assert chosen.observe == (resize,)


@pytest.mark.parametrize(
    "signal",
    [
        pytest.param(job("j", mode=Mode.OFF), id="switched off"),
        pytest.param(job("j", policy="shift"), id="not opted in"),
        pytest.param(job("j", disabled=frozenset(["resize"])), id="the policy is disabled"),
        pytest.param(job("j", mode=Mode.OBSERVE), id="dry run"),
    ],
)
def test_a_policy_that_may_not_act_can_only_restore(signal: JobSignal) -> None:
    restore = proposal("j", rank=Rank.RESTORE)
    assert arbitrate([proposal("j")], signals(signal)).act == ()
    assert arbitrate([proposal("j"), restore], signals(signal)).act == (restore,)


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
def test_X2_each_job_gets_one_proposal_in_whatever_order_they_are_proposed(
    proposals: list[Proposal], random: object
) -> None:
    of_jobs = signals(*(job(uid, policies=BOTH) for uid in "abcd"))
    act = arbitrate(proposals, of_jobs).act
    assert [acting.job for acting in act].count("a") <= 1
    assert {acting.job for acting in act} == {proposed.job for proposed in proposals}
    for acting in act:
        assert acting.rank == min(other.rank for other in proposals if other.job == acting.job)
    shuffled = list(proposals)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(map(_sort_key, arbitrate(shuffled, of_jobs).act)) == sorted(map(_sort_key, act))


def _sort_key(acting: Proposal) -> tuple[str, Rank, int, str]:
    """Return all that decides between proposals, except the order in which they were proposed."""
    return (acting.job, acting.rank, acting.cost, acting.policy)


def test_equal_proposals_of_a_policy_are_carried_out_as_proposed() -> None:
    of_jobs = signals(*(job(uid, policies=BOTH) for uid in "ab"))
    equal = [proposal(uid, pods=1, rank=Rank.SCALE, policy="resize") for uid in "ba"]
    assert [acting.job for acting in arbitrate(equal, of_jobs).act] == ["b", "a"]
