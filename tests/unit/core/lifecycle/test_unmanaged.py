"""A job whose namespace is not opted in, or no longer."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.steps import Release, Ungate, Wait
from kfext.core.lifecycle.unmanaged import NOTICE_SECONDS
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from tests.builders import ANY_SIZE, JobBuilder, job, pods, situation_of
from tests.unit.core.lifecycle.cases import TWO_NODES, plan, three, worker, workers

CASES: dict[str, tuple[JobBuilder, Sequence[Pod], type]] = {
    "a job that kfext holds": (three().held(), (), Release),
    "such a job whose pods are still ending": (three().held(), [worker(0, deleting=True)], Wait),
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


@pytest.mark.parametrize(("made", "pods", "want"), CASES.values(), ids=CASES)
def test_what_bears_our_marks_is_let_go_and_nothing_is_planned(
    made: JobBuilder, pods: Sequence[Pod], want: type
) -> None:
    of = situation_of(made.build(), tuple(pods), plan("a", "a", "a"), managed=False, waited=60.0)
    step = next_step(of, TWO_NODES)
    assert type(step) is want
    if isinstance(step, Release):
        assert step.verdict.reason == names.REASON_NOT_MANAGED
        assert step.pods == ()
    if isinstance(step, Ungate):
        assert len(step.pods) == 3


def short(*, elastic: bool, kueue: bool = False) -> JobBuilder:
    """A job of three workers that runs with two, as there was no room for more."""
    made = job().worker(2, cpu="1").resumed()
    made = made.elastic(**ANY_SIZE) if elastic else made
    return made.queued_by_kueue() if kueue else made


TAKEN: dict[str, tuple[JobBuilder, type]] = {
    "a job that can take it up": (short(elastic=True), Release),
    "a job that cannot": (short(elastic=False), Wait),
    "a job that Kueue started": (short(elastic=True, kueue=True), Wait),
}


@pytest.mark.parametrize(("made", "want"), TAKEN.values(), ids=TAKEN)
def test_what_was_taken_from_a_job_is_given_back(made: JobBuilder, want: type) -> None:
    of = made.build()
    state = JobState(asked=3, admitted=2)
    found = situation_of(
        of, tuple(pods(of, bound="a")), plan("a", "a"), state, managed=False, waited=60.0
    )
    assert type(next_step(found, TWO_NODES)) is want
    early = replace(found, waited=0.0)
    assert isinstance(next_step(early, TWO_NODES), Wait)


def test_a_namespace_that_was_just_opted_in_may_not_be_known_yet() -> None:
    early = situation_of(three().held().build(), managed=False, waited=0.0)
    step = next_step(early, TWO_NODES)
    assert step == Wait(None, again=NOTICE_SECONDS)
    late = replace(early, waited=NOTICE_SECONDS)
    assert isinstance(next_step(late, TWO_NODES), Release)
