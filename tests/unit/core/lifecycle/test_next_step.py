"""A job that has ended, that others run, or that kfext has let go."""

import pytest

from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import DeleteUnbound, Release, Ungate, Wait
from kfext.model.job_state import JobState
from kfext.names import (
    FINISHED,
    PHASE_RELEASED,
    REASON_BIND_TIMEOUT,
    REASON_NO_ROOM,
    REASON_RELEASED,
    RELEASED,
)
from tests.builders import affinity_to, job, pods
from tests.unit.core.lifecycle.cases import (
    NOW,
    TWO_NODES,
    Case,
    decide,
    phase,
    plan,
    three,
    worker,
    workers,
)

ENDS: dict[str, Case] = {
    "succeeded": Case(
        Wait,
        three().resumed().condition("Succeeded"),
        workers(gated=True),
        plan("a", "a", "a"),
        check=phase(FINISHED),
    ),
    "succeeded, and a replaced pod waits at our gate": Case(
        DeleteUnbound,
        three().resumed().condition("Succeeded"),
        [*workers(bound="a")[:2], worker(2, gated=True)],
        plan("a", "a", "a"),
        check=lambda step: [one.name for one in step.pods] == ["train-worker-2"],
        more={"waited": 60.0},
    ),
    "failed while suspended": Case(Wait, three().held().condition("Failed"), check=phase(FINISHED)),
    "failed, and pods that were pinned are never bound": Case(
        DeleteUnbound,
        three().resumed().condition("Failed"),
        [worker(0, bound="a"), worker(1, pinned="a"), worker(2, pinned="a", deleting=True)],
        plan("a", "a", "a"),
        check=lambda step: [one.name for one in step.pods] == ["train-worker-1"],
        more={"waited": 60.0},
    ),
    "failed a moment ago, and kube-scheduler may still bind them": Case(
        Wait,
        three().resumed().condition("Failed"),
        workers(pinned="a"),
        plan("a", "a", "a"),
        check=lambda step: step.phase == FINISHED and step.again == 50.0,
        more={"waited": 10.0},
    ),
    "ended, and where its pods wait is the user's wish": Case(
        Wait,
        job().worker(3, spec={"affinity": affinity_to("a")}).resumed().condition("Failed"),
        pods(job().worker(3, spec={"affinity": affinity_to("a")}).build(), pinned="a"),
        plan("a", "a", "a"),
        check=phase(FINISHED),
        more={"waited": 60.0},
    ),
    "ended, and never was ours": Case(
        Wait, three().resumed().condition("Succeeded"), workers(bound="a"), check=phase(None)
    ),
    "ended, and so have the pods that were pinned": Case(
        Wait,
        three().resumed().condition("Failed"),
        [worker(0, pinned="a", phase="Failed")],
        plan("a", "a", "a"),
        check=lambda step: step.phase == FINISHED and step.again is None,
        more={"waited": 60.0},
    ),
    "being deleted with pods that were pinned: they go with it": Case(
        Wait,
        three().resumed().deleting(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        check=phase(FINISHED),
        more={"waited": 60.0},
    ),
    "being deleted while queued": Case(Wait, three().held().deleting(), check=phase(FINISHED)),
    "being deleted while gated": Case(
        Wait,
        three().resumed().deleting(),
        workers(gated=True),
        plan("a", "a", "a"),
        check=phase(FINISHED),
    ),
    "another system runs it": Case(
        Wait, three().held(), check=phase(None), more={"managed_by": "kueue.x-k8s.io/multikueue"}
    ),
    "released, pods behind our gate": Case(
        Ungate,
        three().resumed().released(),
        [*workers(gated=True)[:2], worker(2, gated=True, deleting=True)],
        check=lambda step: len(step.pods) == 2,
    ),
    "released": Case(Wait, three().resumed().released(), workers(), check=phase(PHASE_RELEASED)),
    "released: why is said": Case(
        Wait,
        three().resumed().released(),
        workers(),
        state=JobState(reason=REASON_BIND_TIMEOUT, message="nobody bound it"),
        check=lambda step: (
            phase(PHASE_RELEASED, REASON_RELEASED)(step)
            and REASON_BIND_TIMEOUT in step.verdict.message
            and "nobody bound it" in step.verdict.message
        ),
    ),
    "released by a user, who cannot take an older message away": Case(
        Wait,
        three().resumed().released(),
        workers(),
        state=JobState(reason=REASON_NO_ROOM, message="no capacity on any node"),
        check=lambda step: (
            f"({REASON_BIND_TIMEOUT});" in step.verdict.message
            and "no capacity" not in step.verdict.message
        ),
    ),
    "released, with a reason that a user wrote": Case(
        Wait,
        three().resumed().annotated(RELEASED, "x" * 200_000),
        workers(),
        check=lambda step: len(step.verdict.message) < 200,
    ),
    "released and suspended by a person, with pods that were pinned": Case(
        Wait,
        three().suspended().released(),
        workers(pinned="a"),
        more={"waited": 60.0},
        check=lambda step: phase(PHASE_RELEASED)(step) and step.again is None,
    ),
    "released while suspended": Case(Wait, three().held().released(), check=phase(PHASE_RELEASED)),
    "released, we died before its stuck pods were deleted: they have their time": Case(
        Wait,
        three().resumed().released(),
        workers(pinned="a"),
        more={"waited": 59.0},
        check=lambda step: phase(PHASE_RELEASED)(step) and step.again == 1.0,
    ),
    "released, we died before its stuck pods were deleted": Case(
        Release,
        three().resumed().released(),
        [worker(0, bound="a"), *workers(pinned="a")[1:]],
        more={"waited": 60.0},
        check=lambda step: len(step.pods) == 2 and step.verdict.reason == REASON_BIND_TIMEOUT,
    ),
    "released, the user's own template pins its pods": Case(
        Wait,
        job().worker(3, spec={"affinity": affinity_to("a")}).resumed().released(),
        workers(pinned="a"),
        more={"waited": 9e9},
        check=phase(PHASE_RELEASED),
    ),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS.keys())
def test_what_has_ended_or_was_let_go(case: Case) -> None:
    decide(case)


def test_deciding_twice_changes_nothing() -> None:
    before = TWO_NODES.claims()
    situation = Situation(three().held().build(), (), None, JobState(), NOW)
    assert next_step(situation, TWO_NODES) == next_step(situation, TWO_NODES)
    assert TWO_NODES.claims() == before
