"""How long a job that runs in part is held back, and what then."""

from collections.abc import Callable
from typing import Any

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.steps import DeleteUnbound, Release, SaveState, Step, Suspend, Wait
from kfext.model.cpu_state import AskedCpu, CpuState
from kfext.model.job_state import JobState
from kfext.names import BINDING, GATED, REASON_BIND_TIMEOUT, REASON_CREATE_TIMEOUT, REASON_NO_ROOM
from tests.builders import ledger, node, situation_of
from tests.unit.core.lifecycle.cases import (
    NOW,
    RUNNING,
    Case,
    decide,
    full,
    phase,
    plan,
    stopped,
    three,
    worker,
    workers,
)

RESIZED = CpuState(
    asked={"worker": AskedCpu(20, None)},
    written={"worker-0": (700,)},
    rests={"shift": "why"},
    used=9.0,
    lost=1.0,
)


def rest_without_room(
    want: type[Step],
    state: JobState,
    *,
    check: Callable[[Any], object],
    **more: Any,
) -> Case:
    """One member runs, two are gated, and the nodes are full."""
    members = [worker(0, bound="b"), *workers(gated=True)[1:]]
    return Case(want, three().resumed(), members, plan("b", "b", "b"), state, full(), check, more)


STRIKES: dict[str, Case] = {
    "a member does not come back, one runs and one is held back: a strike": Case(
        SaveState,
        three().resumed(),
        [worker(0, bound="a"), worker(1, gated=True)],
        plan("a", "a", "a"),
        more={"waited": 30.0, "quiet": 30.0},
        check=lambda step: (
            (step.state.strikes, step.state.retry_at) == (1, NOW + 30)
            and "2 of 3 pods exist" in step.state.message
        ),
    ),
    "the third time: the one held back is let go": Case(
        Release,
        three().resumed(),
        [worker(0, bound="a"), worker(1, gated=True)],
        plan("a", "a", "a"),
        JobState(strikes=2, retry_at=NOW),
        more={"waited": 90.0, "quiet": 90.0},
        check=lambda step: step.pods == () and step.verdict.reason == REASON_CREATE_TIMEOUT,
    ),
    "the third time of a required job: stopped": Case(
        Suspend,
        three().resumed(),
        [worker(0, bound="a"), worker(1, gated=True)],
        plan("a", "a", "a"),
        JobState(strikes=2, retry_at=NOW),
        more={"waited": 90.0, "quiet": 90.0, "colocation": "required"},
        check=stopped(REASON_CREATE_TIMEOUT, 3),
    ),
    "one runs, no room for the rest, for bindTimeout: a strike": rest_without_room(
        SaveState,
        JobState(),
        check=lambda step: (step.state.strikes, step.state.retry_at) == (1, NOW + 60),
        waited=60.0,
    ),
    "one runs, no room for the rest, and the last strike is not bindTimeout ago: it does not count "
    "twice": rest_without_room(
        Wait,
        JobState(strikes=1, retry_at=NOW + 1),
        check=lambda step: phase(GATED, REASON_NO_ROOM)(step) and step.again == 1.0,
        waited=9e9,
    ),
    "one runs, no room for the rest, and the clock was set back an hour: the wait is no longer for "
    "it": rest_without_room(
        SaveState,
        JobState(strikes=1, retry_at=NOW + 3600),
        check=lambda step: step.state.strikes == 2,
        waited=60.0,
    ),
    "one runs, no room for the rest, for the third time: the rest is left to kube-scheduler": (
        rest_without_room(
            Release,
            JobState(strikes=2, retry_at=NOW),
            check=lambda step: (
                step.pods == ()
                and step.verdict.reason == REASON_NO_ROOM
                and "3 attempts: no capacity for the rest" in step.verdict.message
            ),
            waited=180.0,
        )
    ),
    "one runs, no room for the rest, for the third time, required: stopped": rest_without_room(
        Suspend,
        JobState(strikes=2, retry_at=NOW),
        check=stopped(REASON_NO_ROOM, 3),
        waited=180.0,
        colocation="required",
    ),
    "no room for the rest of a required job that Kueue started: never stopped by us": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        [worker(0, bound="b"), *workers(gated=True)[1:]],
        plan("b", "b", "b"),
        JobState(strikes=2),
        on=full(),
        more={"waited": 9e9, "colocation": "required"},
        check=lambda step: phase(GATED, REASON_NO_ROOM)(step) and step.again is None,
    ),
    "no room for a preferred job that Kueue started, for the third time: let go": Case(
        Release,
        three().resumed().queued_by_kueue(),
        workers(gated=True),
        state=JobState(strikes=2),
        on=full(),
        more={"waited": 60.0},
        check=lambda step: step.verdict.reason == REASON_NO_ROOM,
    ),
    "the last strike is not bindTimeout ago: it does not count twice": Case(
        Wait,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=1, retry_at=NOW + 60),
        more={"waited": 60.0},
        check=lambda step: phase(BINDING)(step) and step.again == 60.0,
    ),
    "the third failure: released": Case(
        Release,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=2),
        more={"waited": 60.0},
        check=lambda step: len(step.pods) == 3 and step.verdict.reason == REASON_BIND_TIMEOUT,
    ),
    "the third failure of a required job: stopped": Case(
        Suspend,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=2),
        more={"waited": 60.0, "colocation": "required"},
        check=stopped(REASON_BIND_TIMEOUT, 3),
    ),
    "the third failure of a required job that was resized: stopped, and the sizes go": Case(
        Suspend,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=2, cpu=RESIZED),
        more={"waited": 60.0, "colocation": "required"},
        check=lambda step: step.state.cpu == CpuState(rests=RESIZED.rests, used=9.0, lost=1.0),
    ),
    "the third failure of a required job that Kueue started: never stopped by us": Case(
        DeleteUnbound,
        three().resumed().queued_by_kueue(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=2),
        more={"waited": 60.0, "colocation": "required"},
    ),
}


@pytest.mark.parametrize("case", STRIKES.values(), ids=STRIKES.keys())
def test_every_wait_has_an_end(case: Case) -> None:
    decide(case)


def test_a_required_gang_without_room_for_its_rest_does_not_back_off_from_what_is_foreseen() -> (
    None
):
    on = ledger(node("a", cpu="2"), node("b", cpu="4"))
    members = [worker(0, bound="a"), worker(1, bound="a"), worker(2, gated=True)]
    state = JobState(strikes=2, retry_at=NOW - 1, reason=REASON_NO_ROOM, message="no room")
    claims = {
        ("pod", pod.uid): Claim("a", pod.requests, job="uid-1") for pod in members if pod.node_name
    }
    for key, claim in claims.items():
        on.claim(key, claim)
    situation = situation_of(
        RUNNING, tuple(members), plan("a", "a", "a"), state, NOW, colocation="required", waited=61
    )
    step = next_step(situation, on)
    assert isinstance(step, Suspend)
    assert step.state.retry_at == 0.0
