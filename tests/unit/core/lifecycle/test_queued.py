"""A job that kfext holds suspended."""

from dataclasses import replace

import pytest

from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Allowance, Around, Situation
from kfext.core.lifecycle.steps import Release, Start, Wait
from kfext.core.settings.resolve import Settings
from kfext.core.settings.values import Range
from kfext.model.policy import Placement
from kfext.model.quota import parse_quota
from kfext.model.state import JobState
from kfext.names import (
    QUEUED,
    REASON_BIND_TIMEOUT,
    REASON_CREATE_TIMEOUT,
    REASON_NO_ROOM,
    REASON_TOO_BIG,
    SUSPENDED,
)
from tests.builders import job, ledger, node
from tests.unit.core.lifecycle.cases import (
    NOW,
    TWO_NODES,
    Case,
    decide,
    full,
    moved_to,
    phase,
    plan,
    stop_state,
    three,
    was_suspended,
    workers,
)

QUEUE: dict[str, Case] = {
    "suspended by a person: respected": Case(Wait, three().suspended(), check=phase(SUSPENDED)),
    "suspended by a person while it ran under our plan: respected": Case(
        Wait, three().suspended(), workers(bound="a"), plan("a", "a", "a"), check=phase(SUSPENDED)
    ),
    "suspended in a namespace that nobody opted in: not ours to show": Case(
        Wait, three().suspended(), more={"managed": False}, check=phase(None)
    ),
    "suspended by a person after the namespace was opted out: still ours to show": Case(
        Wait,
        three().suspended(),
        plan=plan("a", "a", "a"),
        more={"managed": False},
        check=phase(SUSPENDED),
    ),
    "suspended by Kueue": Case(Wait, three().suspended().queued_by_kueue(), check=phase(SUSPENDED)),
    "held, but Kueue's webhook claimed it after ours": Case(
        Wait, three().held().queued_by_kueue(), check=phase(SUSPENDED)
    ),
    "there is room": Case(Start, three().held(), check=moved_to("a", "a", "a")),
    "a later start counts on from the last plan": Case(
        Start,
        three().held(),
        plan=plan("a", "a", "a", generation=4),
        check=lambda step: step.plan.generation == 5,
    ),
    "a start after a stop counts on from the plan that the stop took away": Case(
        Start,
        three().held(),
        state=JobState(generation=4),
        check=lambda step: step.plan.generation == 5,
    ),
    "colocation was switched off in the queue": Case(
        Release, three().held(), more={"colocation": "off"}, check=lambda step: not step.pods
    ),
    "no room: waits without an end for what runs": Case(
        Wait,
        three().held(),
        on=full(),
        more={"hopeless": 0.0},
        check=lambda step: (
            phase(QUEUED, REASON_NO_ROOM)(step)
            and step.again is None
            and "released" not in step.verdict.message
        ),
    ),
    "no room, and the policy has a bound that is not over": Case(
        Wait,
        three().held().created(NOW - 89),
        on=full(),
        more={"placement": Placement(release_after=90.0)},
        check=lambda step: phase(QUEUED, REASON_NO_ROOM)(step) and step.again == 1.0,
    ),
    "no room, and the policy's bound is over": Case(
        Release,
        three().held().created(NOW - 90),
        on=full(),
        more={"placement": Placement(release_after=90.0)},
        check=lambda step: step.verdict.reason == REASON_NO_ROOM,
    ),
    "the bound of the policy counts from the last stop": Case(
        Wait,
        was_suspended().created(0),
        state=stop_state(),
        on=full(),
        more={"placement": Placement(release_after=101.0)},
        check=lambda step: step.again == 1.0,
    ),
    "too big: told at once, released after a minute": Case(
        Wait,
        job().worker(3, cpu="3").held(),
        check=lambda step: (
            phase(QUEUED, REASON_TOO_BIG)(step)
            and step.again == 60.0
            and "60 s" in step.verdict.message
        ),
    ),
    "too big for a minute: released": Case(
        Release,
        job().worker(3, cpu="3").held(),
        more={"hopeless": 60.0},
        check=lambda step: step.verdict.reason == REASON_TOO_BIG,
    ),
    "queued for long, too big only since a moment ago: not released yet": Case(
        Wait,
        job().worker(3, cpu="3").held().created(0),
        more={"hopeless": 5.0},
        check=lambda step: step.again == 55.0,
    ),
    "required and too big: never released": Case(
        Wait,
        job().worker(3, cpu="3").held().created(0),
        more={"hopeless": 9e9, "colocation": "required"},
        check=lambda step: (
            phase(QUEUED, REASON_TOO_BIG)(step)
            and step.again is None
            and "never released" in step.verdict.message
        ),
    ),
    "required is not released by the policy's bound either": Case(
        Wait,
        three().held().created(0),
        on=full(),
        more={"colocation": "required", "placement": Placement(release_after=1.0)},
        check=phase(QUEUED, REASON_NO_ROOM),
    ),
    "a back-off": Case(
        Wait,
        was_suspended(),
        state=stop_state(retry_at=NOW + 7, reason=REASON_CREATE_TIMEOUT, message="quota"),
        check=lambda step: phase(QUEUED, REASON_CREATE_TIMEOUT)(step) and step.again == 7.0,
    ),
    "a back-off that is over": Case(
        Start, was_suspended(), state=stop_state(retry_at=NOW, reason=REASON_CREATE_TIMEOUT)
    ),
}


@pytest.mark.parametrize("case", QUEUE.values(), ids=QUEUE.keys())
def test_a_job_in_the_queue(case: Case) -> None:
    decide(case)


@pytest.mark.parametrize("until", [NOW + 65, 2.0**62])
def test_a_job_that_backs_off_says_until_when(until: float) -> None:
    state = JobState(strikes=3, retry_at=until, reason=REASON_BIND_TIMEOUT, message="not bound")
    step = next_step(Situation(three().held().build(), (), None, state, NOW), TWO_NODES)
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert step.verdict.message.startswith("not bound; it backs off until ")
    assert until > 2 * NOW or step.verdict.message.endswith("00:17:45 UTC")


def test_a_quota_that_does_not_hold_all_workers_makes_an_elastic_job_start_short() -> None:
    quota = parse_quota(
        {
            "metadata": {"namespace": "team", "name": "q"},
            "status": {"hard": {"pods": "5"}, "used": {"pods": "1"}},
        }
    )
    around = Around(allowance=Allowance(quotas=(quota,)))
    room = ledger(node("a", cpu="8"))
    of = job().worker(8, cpu="1").held().elastic().build()
    situation = Situation(of, (), None, JobState(), NOW, around=around)
    step = next_step(replace(situation, settings=Settings(elastic=Range(2, 8))), room)
    assert isinstance(step, Start)
    assert len(step.plan.assignment) == 4
    rigid = next_step(situation, room)
    assert isinstance(rigid, Wait)
