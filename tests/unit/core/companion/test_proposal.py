"""Proposals: stages, and what gives back."""

import pytest

from kfext.core.companion.proposal import (
    Measure,
    Rank,
    Size,
    in_stages,
    restore_proposal,
    restricts,
    value_of,
)
from kfext.model.qos import QoS
from tests.unit.core.companion.jobs import job, pod, proposal, signals


def test_what_shrinks_comes_before_what_grows() -> None:
    of = job("j", pod("a", limit=100), pod("b", limit=300), pod("c"))
    a, b, c = Size("a", 200), Size("b", 200), Size("c", 200)
    assert in_stages(of, [a, b, c]) == ((b, c), (a,))
    assert in_stages(of, [a]) == ((a,),)


def test_a_proposal_costs_the_pods_that_it_writes() -> None:
    assert proposal(pods=3).cost == 3


def test_what_the_user_wrote_is_given_back() -> None:
    of = job(
        "j",
        pod("capped", limit=100, user_limit=400),
        pod("raised", limit=500, user_limit=400),
        pod("added", limit=100),
        pod("as-written", limit=400, user_limit=400),
        pod("without"),
    )
    back = restore_proposal("resize", of, signals(of), reason="why", rests=True)
    assert back is not None
    assert back.stages == (
        (Size("raised", 400),),
        (Size("capped", 400), Size("added", 1400)),
    )
    assert (back.rank, back.measure, back.rests, back.reason) == (Rank.RESTORE, None, True, "why")


def test_a_guaranteed_pod_gets_its_request_back_as_well() -> None:
    of = job("j", pod("a", request=100, limit=100, user_limit=400, qos=QoS.GUARANTEED))
    back = restore_proposal("shift", of, signals(of), reason="why", rests=False)
    assert back is not None
    assert back.stages == ((Size("a", limit=400, request=400),),)


def test_there_is_nothing_to_give_back_to_pods_as_the_user_wrote_them() -> None:
    of = job("j", pod("a", limit=400, user_limit=400), pod("b"))
    assert restore_proposal("resize", of, signals(of), reason="why", rests=False) is None


def test_a_policy_comes_to_rest_although_there_is_nothing_to_give_back() -> None:
    of = job("j", pod("a", limit=400, user_limit=400))
    back = restore_proposal("resize", of, signals(of), reason="why", rests=True)
    assert back is not None
    assert (back.stages, back.rests) == ((), True)


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        pytest.param((Size("a", 40),), True, id="a limit below the present one"),
        pytest.param((Size("a", 400), Size("b", 1000)), True, id="one such limit of two"),
        pytest.param((Size("a", 300),), False, id="a part of what was taken from it"),
        pytest.param((Size("a", 400), Size("b", 1400)), False, id="what the user wrote"),
        pytest.param((), False, id="no size"),
    ],
)
def test_a_proposal_restricts_a_job_by(sizes: tuple[Size, ...], *, want: bool) -> None:
    of = job("j", pod("a", limit=50, user_limit=400), pod("b"))
    assert restricts(proposal(stages=(sizes,)), of, signals(of)) is want


def test_a_job_is_measured_by_its_rate_or_its_use() -> None:
    of = job("j", pod("a", use=300), rate=2.5)
    assert value_of(of, Measure.RATE) == 2.5
    assert value_of(of, Measure.USE) == 300
