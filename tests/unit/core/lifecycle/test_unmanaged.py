"""A job whose namespace is not opted in, or no longer."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.steps import Release, Ungate, Wait
from kfext.core.lifecycle.unmanaged import NOTICE_SECONDS
from kfext.model.pod import Pod
from tests.builders import JobBuilder, situation_of
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


def test_a_namespace_that_was_just_opted_in_may_not_be_known_yet() -> None:
    early = situation_of(three().held().build(), managed=False, waited=0.0)
    step = next_step(early, TWO_NODES)
    assert step == Wait(None, again=NOTICE_SECONDS)
    late = replace(early, waited=NOTICE_SECONDS)
    assert isinstance(next_step(late, TWO_NODES), Release)
