"""What a situation derives: usable claims, time in the queue, exclusions, the next plan."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kfext.core.lifecycle.situation import Clocks, QueueContext, Situation
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation
from kfext.model.job_state import JobState
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder
from tests.unit.core.lifecycle.cases import NOW, RUNNING, plan, reservation, three

QUEUED = Situation(three().held().build(), (), None, JobState(), NOW)


def ending(seconds: int) -> JobBuilder:
    builder = three().held()
    builder.raw["spec"]["runPolicy"]["activeDeadlineSeconds"] = seconds
    return builder


RESERVATION = reservation(until=NOW + 60)
OPEN: dict[str, tuple[JobBuilder, QueueContext, bool]] = {
    "no reservation": (three().held(), QueueContext(), False),
    "a job after the head": (three().held(), QueueContext(reservation=RESERVATION), False),
    "the head, and a job before it": (
        three().held(),
        QueueContext(reservation=RESERVATION, may_use_reserved=True),
        True,
    ),
    "a running job": (three().resumed(), QueueContext(reservation=RESERVATION), True),
    "a job that ends in time": (ending(60), QueueContext(reservation=RESERVATION), True),
    "a job that ends too late": (ending(61), QueueContext(reservation=RESERVATION), False),
    "a job with an end, while the reservation has no known end": (
        ending(1),
        QueueContext(reservation=reservation(until=math.inf)),
        False,
    ),
}


@pytest.mark.parametrize(("builder", "context", "want"), OPEN.values(), ids=OPEN)
def test_which_jobs_a_reservation_admits(
    builder: JobBuilder, context: QueueContext, want: bool
) -> None:
    result = replace(QUEUED, job=builder.build(), context=context).usable_claims
    assert result == (tuple(RESERVATION.claims) if want else ())


OLD = three().created(NOW - 50)
HOUR = 3600.0
QUEUE_TIMES: dict[str, tuple[JobBuilder, JobState, float]] = {
    "since it was created": (OLD, JobState(), 50.0),
    "since it was last suspended": (OLD, JobState(suspended_at=NOW - 20), 20.0),
    "a failed attempt costs no place in the queue": (
        OLD,
        JobState(suspended_at=NOW - 20, queued_since=NOW - 50),
        50.0,
    ),
    "suspended within the same second": (OLD, JobState(suspended_at=NOW + 0.5), 0.0),
    "suspended by a clock that was ahead: since the operator confirmed it": (
        three().created(NOW - 50).condition("Suspended", since=NOW - 15),
        JobState(suspended_at=NOW + HOUR),
        15.0,
    ),
    "suspended by a clock that was ahead, and the operator's was too": (
        three().created(NOW - 50).condition("Suspended", since=NOW + HOUR),
        JobState(suspended_at=NOW + HOUR),
        50.0,
    ),
    "queued by a clock that was ahead: since it was suspended": (
        OLD,
        JobState(suspended_at=NOW - 20, queued_since=NOW + HOUR),
        20.0,
    ),
    "created by a clock that was ahead: for as long as the controller has seen it wait": (
        three().created(NOW + HOUR),
        JobState(),
        7.0,
    ),
}


@pytest.mark.parametrize(("builder", "state", "want"), QUEUE_TIMES.values(), ids=QUEUE_TIMES)
def test_the_time_in_the_queue(builder: JobBuilder, state: JobState, want: float) -> None:
    situation = replace(QUEUED, job=builder.build(), state=state, clocks=Clocks(waited=7.0))
    assert situation.in_line == want


def test_a_node_is_excluded_until_its_time_is_over() -> None:
    ends = {"a": NOW - 1, "b": NOW, "c": NOW + 1, "by a clock a day ahead": NOW + 86400}
    assert replace(QUEUED, state=JobState(excluded=ends)).excluded == ("c",)


@pytest.mark.parametrize("colocation", Colocation)
def test_only_a_required_job_must_be_on_one_node(colocation: Colocation) -> None:
    result = replace(QUEUED, settings=Settings(colocation=colocation))
    assert result.limits.max_nodes == (1 if colocation == "required" else None)
    assert result.never_released is (colocation == "required")


GENERATIONS: dict[str, tuple[Mapping[str, Any], int]] = {
    "before the first plan": ({}, 0),
    "under a plan": ({"plan": plan("a", generation=3)}, 3),
    "after a plan that was removed": ({"state": JobState(generation=4)}, 4),
    "under a plan after earlier plans": (
        {"plan": plan("a", generation=5), "state": JobState(generation=4)},
        5,
    ),
    "under a plan that another client wrote again": (
        {"plan": plan("a", generation=2), "state": JobState(generation=4)},
        4,
    ),
}


@pytest.mark.parametrize(("more", "want"), GENERATIONS.values(), ids=GENERATIONS)
def test_no_two_plans_have_the_same_number(more: Mapping[str, Any], want: int) -> None:
    situation = replace(QUEUED, **more)
    following = situation.planned({ReplicaKey("worker", 0): "b"}, port=20000, why="more")
    assert situation.generation == want
    assert (following.generation, following.nodes) == (want + 1, ("b",))
    assert (following.job_uid, following.port) == ("uid-1", 20000)


def test_the_back_off_doubles_up_to_five_minutes() -> None:
    waits = []
    for strikes in range(7):
        state = JobState(strikes=strikes)
        waits.append(Situation(RUNNING, (), None, state, NOW).after_strike("r", "m").retry_at - NOW)
    assert waits == [15, 30, 60, 120, 240, 300, 300]


def test_a_strike_is_counted_with_its_reason_and_costs_nothing_else() -> None:
    state = JobState(strikes=1, excluded={"a": 1.0}, suspended_at=5.0, generation=3)
    struck = replace(QUEUED, state=state).after_strike("BindTimeout", "not bound")
    assert (struck.strikes, struck.reason, struck.message) == (2, "BindTimeout", "not bound")
    assert replace(struck, strikes=1, retry_at=0.0, reason="", message="") == state
