"""Proposals: stages, and what gives back."""

from kfext.model.qos import QoS
from kfext.state.running.proposal import (
    Measure,
    Rank,
    Size,
    in_stages,
    restore_proposal,
    value_of,
)
from tests.unit.state.running.jobs import job, pod, proposal


def test_what_shrinks_comes_before_what_grows() -> None:
    of = job("j", pod("a", limit=100), pod("b", limit=300), pod("c", request=100))
    a, b, c = Size("a", 200), Size("b", 200), Size("c", request=10)
    assert in_stages(of, [a, b, c]) == ((b, c), (a,))
    assert in_stages(of, [a]) == ((a,),)
    assert in_stages(of, [Size("c", request=370), b]) == ((b,), (Size("c", request=370),))


def test_a_proposal_costs_the_pods_that_it_writes() -> None:
    assert proposal(pods=3).cost == 3


def test_what_the_user_wrote_is_given_back() -> None:
    of = job(
        "j",
        pod("capped", limit=100, user_limit=400),
        pod("raised", limit=500, user_limit=400),
        pod("favoured", request=370, user_request=20),
        pod("gave-way", request=10, user_request=20),
        pod("as-written", limit=400, user_limit=400),
        pod("without"),
    )
    back = restore_proposal("resize", of, reason="why", rests={"resize"})
    assert back is not None
    assert back.stages == (
        (Size("raised", 400), Size("favoured", request=20)),
        (Size("capped", 400), Size("gave-way", request=20)),
    )
    assert (back.rank, back.measure, back.reason) == (Rank.RESTORE, None, "why")
    assert back.rests == {"resize"}


def test_a_guaranteed_pod_gets_its_request_back_as_well() -> None:
    of = job(
        "j", pod("a", request=100, limit=100, user_request=400, user_limit=400, qos=QoS.GUARANTEED)
    )
    back = restore_proposal("shift", of, reason="why")
    assert back is not None
    assert back.stages == ((Size("a", limit=400, request=400),),)


def test_there_is_nothing_to_give_back_to_pods_as_the_user_wrote_them() -> None:
    of = job("j", pod("a", limit=400, user_limit=400), pod("b"))
    assert restore_proposal("resize", of, reason="why") is None


def test_a_policy_comes_to_rest_although_there_is_nothing_to_give_back() -> None:
    of = job("j", pod("a", limit=400, user_limit=400))
    back = restore_proposal("resize", of, reason="why", rests={"resize"})
    assert back is not None
    assert back.stages == ()
    assert back.rests == {"resize"}


def test_a_job_is_measured_by_its_rate_or_its_use() -> None:
    of = job("j", pod("a", use=300), rate=2.5)
    assert value_of(of, Measure.RATE) == 2.5
    assert value_of(of, Measure.USE) == 300
