"""When a suspended job may be resumed."""

import pytest

from kfext.core.lifecycle.steps import Unsuspend, Wait
from kfext.model.job_state import JobState
from kfext.names import QUEUED, REASON_WAITING_FOR_SUSPEND
from tests.unit.core.lifecycle.cases import (
    NOW,
    Case,
    decide,
    phase,
    stop_state,
    three,
    was_suspended,
    worker,
    workers,
)

RESUME: dict[str, Case] = {
    "stopped for a cause and not yet safe to resume: the cause is said first": Case(
        Wait,
        was_suspended(),
        workers(deleting=True),
        state=stop_state(message="exceeded quota"),
        check=lambda step: step.verdict.message.startswith("exceeded quota; 3 pods"),
    ),
    "colocation was switched off while the last pods end: not before they are gone": Case(
        Wait,
        was_suspended(),
        workers(deleting=True),
        state=stop_state(),
        more={"colocation": "off"},
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "pods of the last start are still terminating": Case(
        Wait,
        was_suspended(),
        workers(deleting=True)[:1],
        state=stop_state(),
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "pods of the last start have not begun to end": Case(
        Wait,
        was_suspended(),
        workers(bound="a"),
        state=stop_state(),
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "the operator has said nothing yet": Case(
        Wait, three().held(), state=stop_state(), check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND)
    ),
    "the operator still says that it runs": Case(
        Wait,
        three().held().condition("Suspended", status="False", since=NOW - 1),
        state=stop_state(),
        more={"waited": 29.0},
        check=lambda step: (
            phase(QUEUED, REASON_WAITING_FOR_SUSPEND)(step)
            and step.again == 1.0
            and "30 s after its last pod" in step.verdict.message
        ),
    ),
    "the operator says for ever that it runs, as 1.8.0 does of a job with a ttl: resumed": Case(
        Unsuspend,
        three().held().condition("Suspended", status="False", since=NOW - 1),
        state=stop_state(),
        more={"waited": 30.0},
    ),
    "the operator never says anything: resumed": Case(
        Unsuspend, three().held(), state=stop_state(), more={"waited": 30.0}
    ),
    "the operator says nothing, and the last pod went a moment ago": Case(
        Wait,
        three().held(),
        state=stop_state(),
        more={"waited": 9e9, "settled": 20.0},
        check=lambda step: step.again == 10.0,
    ),
    "the operator says nothing, and pods are there": Case(
        Wait,
        three().held(),
        workers(deleting=True),
        state=stop_state(),
        more={"waited": 9e9},
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "pods of the last start do not end: the message names the nodes": Case(
        Wait,
        was_suspended(),
        [*workers(bound="b", deleting=True)[:2], worker(2, bound="a", deleting=True)],
        state=stop_state(),
        check=lambda step: step.verdict.message.endswith("terminating on a and b"),
    ),
    "it never had pods": Case(Unsuspend, three().held()),
    "the operator has said nothing for a while": Case(
        Wait,
        was_suspended(since=NOW - 101),
        state=stop_state(),
        more={"waited": 20.0},
        check=lambda step: step.again == 10.0,
    ),
    "the operator's word is older than our suspend": Case(
        Wait,
        was_suspended(since=NOW - 101),
        state=stop_state(),
        check=lambda step: phase(QUEUED, REASON_WAITING_FOR_SUSPEND)(step) and step.again == 30.0,
    ),
    "the operator never saw the resume, so it has nothing new to say": Case(
        Unsuspend, was_suspended(since=NOW - 500), state=stop_state(), more={"waited": 30.0}
    ),
    "its word within the same second counts": Case(
        Unsuspend, was_suspended(since=NOW - 100), state=JobState(suspended_at=NOW - 100 + 0.9)
    ),
    "the operator's word is not two seconds old": Case(
        Wait,
        was_suspended(since=NOW - 1),
        state=stop_state(),
        check=lambda step: phase(QUEUED, REASON_WAITING_FOR_SUSPEND)(step) and step.again == 1.0,
    ),
    "the last pod went less than two seconds ago": Case(
        Wait,
        was_suspended(),
        state=stop_state(),
        more={"settled": 0.5},
        check=lambda step: step.again == 1.5,
    ),
    "all is quiet": Case(Unsuspend, was_suspended(), state=stop_state(), more={"settled": 2.0}),
    "the operator's clock is an hour ahead": Case(
        Unsuspend, was_suspended(since=NOW + 3600), state=stop_state(), more={"settled": 2.0}
    ),
}


@pytest.mark.parametrize("case", RESUME.values(), ids=RESUME.keys())
def test_when_it_is_safe_to_resume(case: Case) -> None:
    decide(case)
