"""One order for the proposals of all policies, and one operation in flight per job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.companion.arbitration import arbitrate
from kfext.core.companion.proposal import Proposal, Rank
from kfext.model.policy import Mode, PolicyChoice
from tests.unit.core.companion.jobs import job, proposal, signals

BOTH = {"resize": PolicyChoice(), "shift": PolicyChoice()}
EACH = {rank: proposal(f"{rank.name}", rank=rank) for rank in Rank}


def test_X2_what_hurts_is_undone_before_anything_is_resized() -> None:
    seen = signals(*(job(one.job) for one in EACH.values()))
    chosen = arbitrate(reversed(EACH.values()), seen)
    assert [one.rank.name for one in chosen.act] == ["RESTORE", "RESIZE"]


def test_X2_a_job_gets_the_first_in_the_order_and_no_other() -> None:
    resize, back = proposal("j"), proposal("j", rank=Rank.RESTORE)
    assert arbitrate([resize, back], signals(job("j"))).act == (back,)


def test_X2_of_one_rank_what_writes_fewer_pods_comes_first() -> None:
    seen = signals(*(job(uid, policies=BOTH) for uid in "ab"))
    dear, cheap = proposal("a", pods=3), proposal("b", pods=1)
    assert arbitrate([dear, cheap], seen).act == (cheap, dear)
    resize, shift = proposal("a", pods=3), proposal("a", pods=2, policy="shift")
    assert arbitrate([resize, shift], seen).act == (shift,)


@pytest.mark.parametrize("rank", Rank)
def test_X2_a_job_with_an_operation_in_flight_gets_none(rank: Rank) -> None:
    seen = signals(job("j", in_flight=True), job("k"))
    assert arbitrate([proposal("j", rank=rank)], seen).act == ()


def test_a_job_that_has_gone_gets_none() -> None:
    assert arbitrate([proposal("gone")], signals(job("j"))).act == ()


def test_what_is_only_shown_keeps_nothing_from_acting() -> None:
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
        pytest.param(job("j", rests=frozenset(["resize"])), id="the policy rests"),
        pytest.param(job("j", mode=Mode.OBSERVE), id="only shown"),
    ],
)
def test_a_policy_that_may_not_act_can_only_give_back(of: object) -> None:
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


@given(PROPOSALS, st.sets(st.sampled_from("abcd")), st.randoms(use_true_random=False))
def test_X2_no_job_has_two_operations_in_whatever_order_they_are_proposed(
    proposals: list[Proposal], in_flight: set[str], random: object
) -> None:
    seen = signals(*(job(uid, policies=BOTH, in_flight=uid in in_flight) for uid in "abcd"))
    act = arbitrate(proposals, seen).act
    assert [one.job for one in act].count("a") <= 1
    assert {one.job for one in act} == {one.job for one in proposals} - in_flight
    for one in act:
        assert one.rank == min(other.rank for other in proposals if other.job == one.job)
    shuffled = list(proposals)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert arbitrate(shuffled, seen).act == act
