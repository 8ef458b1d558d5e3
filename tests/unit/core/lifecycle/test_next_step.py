"""A job that ended, was released, is run by another system, or is in an unmanaged namespace."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.lifecycle.next_step import NOTICE_SECONDS, next_step
from kfext.core.lifecycle.situation import Clocks, Situation
from kfext.core.lifecycle.steps import DeleteUnbound, Release, Ungate, Wait
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.names import (
    FINISHED,
    PHASE_RELEASED,
    REASON_BIND_TIMEOUT,
    REASON_NO_ROOM,
    REASON_RELEASED,
    RELEASED,
)
from tests.builders import ANY_SIZE, JobBuilder, affinity_to, job, pods, situation_of
from tests.unit.core.lifecycle.cases import (
    NOW,
    TWO_NODES,
    Case,
    check_case,
    held,
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
    "succeeded, and a replaced pod waits at kfext's gate": Case(
        DeleteUnbound,
        three().resumed().condition("Succeeded"),
        [*workers(bound="a")[:2], worker(2, gated=True)],
        plan("a", "a", "a"),
        check=lambda step: [pod.name for pod in step.pods] == ["train-worker-2"],
        more={"waited": 60.0},
    ),
    "failed while suspended": Case(Wait, three().held().condition("Failed"), check=phase(FINISHED)),
    "failed, and pods that were pinned are never bound": Case(
        DeleteUnbound,
        three().resumed().condition("Failed"),
        [worker(0, bound="a"), worker(1, pinned="a"), worker(2, pinned="a", deleting=True)],
        plan("a", "a", "a"),
        check=lambda step: [pod.name for pod in step.pods] == ["train-worker-1"],
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
    "ended, and its pods wait where the user wants them": Case(
        Wait,
        job().worker(3, spec={"affinity": affinity_to("a")}).resumed().condition("Failed"),
        pods(job().worker(3, spec={"affinity": affinity_to("a")}).build(), pinned="a"),
        plan("a", "a", "a"),
        check=phase(FINISHED),
        more={"waited": 60.0},
    ),
    "ended, and kfext never handled it": Case(
        Wait, three().resumed().condition("Succeeded"), workers(bound="a"), check=phase(None)
    ),
    "ended, and its pinned pods ended too": Case(
        Wait,
        three().resumed().condition("Failed"),
        [worker(0, pinned="a", phase="Failed")],
        plan("a", "a", "a"),
        check=lambda step: step.phase == FINISHED and step.again is None,
        more={"waited": 60.0},
    ),
    "being deleted with pinned pods: they are deleted with it": Case(
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
    "another system runs it": held(
        Wait, more={"managed_by": "kueue.x-k8s.io/multikueue"}, check=phase(None)
    ),
    "released, with pods at kfext's gate": Case(
        Ungate,
        three().resumed().released(),
        [*workers(gated=True)[:2], worker(2, gated=True, deleting=True)],
        check=lambda step: len(step.pods) == 2,
    ),
    "released": Case(Wait, three().resumed().released(), workers(), check=phase(PHASE_RELEASED)),
    "released: the reason is shown": Case(
        Wait,
        three().resumed().released(),
        workers(),
        state=JobState(reason=REASON_BIND_TIMEOUT, message="no scheduler bound it"),
        check=lambda step: (
            phase(PHASE_RELEASED, REASON_RELEASED)(step)
            and REASON_BIND_TIMEOUT in step.verdict.message
            and "no scheduler bound it" in step.verdict.message
        ),
    ),
    "released by a user, with an older message": Case(
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
    "released, the controller died before its stuck pods were deleted: they have their time": Case(
        Wait,
        three().resumed().released(),
        workers(pinned="a"),
        more={"waited": 59.0},
        check=lambda step: phase(PHASE_RELEASED)(step) and step.again == 1.0,
    ),
    "released, the controller died before its stuck pods were deleted": Case(
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
def test_a_job_that_has_ended_or_was_released(case: Case) -> None:
    check_case(case)


def test_a_second_decision_changes_nothing() -> None:
    before = TWO_NODES.claims()
    situation = Situation(three().held().build(), (), None, JobState(), NOW)
    assert next_step(situation, TWO_NODES) == next_step(situation, TWO_NODES)
    assert TWO_NODES.claims() == before


CASES: dict[str, tuple[JobBuilder, Sequence[Pod], type]] = {
    "a job that kfext holds": (three().held(), (), Release),
    "a job that kfext holds, with pods that are still ending": (
        three().held(),
        [worker(0, deleting=True)],
        Wait,
    ),
    "a job that a person suspended": (three().suspended(), (), Wait),
    "a job that Kueue suspended": (three().held().queued_by_kueue(), (), Wait),
    "gated pods": (three().resumed(), workers(gated=True), Ungate),
    "gated pods of a job that Kueue started": (
        three().resumed().queued_by_kueue(),
        workers(gated=True),
        Ungate,
    ),
    "gated pods that are being deleted": (
        three().resumed(),
        workers(gated=True, deleting=True),
        Wait,
    ),
    "it runs as kfext placed it": (three().resumed(), workers(bound="a"), Wait),
    "its pods are pinned": (three().resumed(), workers(pinned="a"), Wait),
    "it has a plan and no pods": (three().resumed(), (), Wait),
}


@pytest.mark.parametrize(("builder", "pods", "want"), CASES.values(), ids=CASES)
def test_a_job_with_kfexts_marks_is_released_and_not_planned(
    builder: JobBuilder, pods: Sequence[Pod], want: type
) -> None:
    situation = situation_of(
        builder.build(), tuple(pods), plan("a", "a", "a"), managed=False, waited=60.0
    )
    step = next_step(situation, TWO_NODES)
    assert type(step) is want
    if isinstance(step, Release):
        assert step.verdict.reason == names.REASON_NOT_MANAGED
        assert step.pods == ()
    if isinstance(step, Ungate):
        assert len(step.pods) == 3


def short_job(*, elastic: bool, kueue: bool = False) -> JobBuilder:
    """A job of three workers that runs with two for want of capacity."""
    builder = job().worker(2, cpu="1").resumed()
    builder = builder.elastic(**ANY_SIZE) if elastic else builder
    return builder.queued_by_kueue() if kueue else builder


SHORT_JOBS: dict[str, tuple[JobBuilder, type]] = {
    "a job that can scale up": (short_job(elastic=True), Release),
    "a job that cannot scale up": (short_job(elastic=False), Wait),
    "a job that Kueue started": (short_job(elastic=True, kueue=True), Wait),
}


@pytest.mark.parametrize(("builder", "want"), SHORT_JOBS.values(), ids=SHORT_JOBS)
def test_workers_that_were_removed_from_a_job_are_restored(builder: JobBuilder, want: type) -> None:
    job = builder.build()
    state = JobState(requested=3, assigned=2)
    situation = situation_of(
        job, tuple(pods(job, bound="a")), plan("a", "a"), state, managed=False, waited=60.0
    )
    assert type(next_step(situation, TWO_NODES)) is want
    early = replace(situation, clocks=Clocks(waited=0.0))
    assert isinstance(next_step(early, TWO_NODES), Wait)


def test_a_job_is_released_only_after_its_namespace_had_time_to_become_known() -> None:
    early = situation_of(three().held().build(), managed=False, waited=0.0)
    step = next_step(early, TWO_NODES)
    assert step == Wait(None, again=NOTICE_SECONDS)
    late = replace(early, clocks=Clocks(waited=NOTICE_SECONDS))
    assert isinstance(next_step(late, TWO_NODES), Release)
