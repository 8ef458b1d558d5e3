"""What the companion knows of a job: of its CPU, and of its number of workers."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.core.progress.reported import Progress
from kfext.model.cpu_use import CpuUse
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.model.scale_state import MOST_SPEEDS, ScaleState
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.uses import Uses
from kfext.state.running.operation import ResizeOperation, Trial
from kfext.state.running.proposal import Measure
from kfext.state.running.running_job import (
    CpuRecord,
    SizeRecord,
    all_measured,
    all_running,
    has_kfext_size,
    is_whole,
    leaving,
    live_pods,
    size_record,
)
from kfext.state.running.size.scale import Sizes
from tests.builders import job, pods
from tests.unit.state.running.jobs import proposal
from tests.unit.state.running.pods import running

BUILT = job("TFJob", uid="j").worker(2).resumed().build()
TRIAL = Trial(proposal(), before=(1.0,))


# --- after a failure ------------------------------------------------------------------------------

FAILED = 1000.0
HELD: dict[str, tuple[dict[str, bool], float, int, bool]] = {
    "what the user wrote is restored": ({"restoring": True}, 0, 0, False),
    "nothing is tried for a while": ({}, 29, 0, True),
    "then it is tried again": ({}, 30, 0, False),
    "at once if a quota changes": ({}, 0, 1, False),
    "what was refused for good is not": ({"lasting": True}, 10_000, 0, True),
    "unless a quota changes": ({"lasting": True}, 0, 1, False),
    "but not if just that has failed": ({"restored": True, "restoring": True}, 29, 0, True),
    "that is tried again even if it was refused for good": (
        {"restored": True, "lasting": True, "restoring": True},
        30,
        0,
        False,
    ),
}


@pytest.mark.parametrize(("how", "after", "changes", "want"), HELD.values(), ids=HELD)
def test_after_a_failure(how: dict[str, bool], after: float, changes: int, *, want: bool) -> None:
    cpu = CpuRecord()
    restored, lasting = how.get("restored", False), how.get("lasting", False)
    cpu.fail(FAILED, lasting=lasting, restoring=restored, changes=0)
    assert cpu.pause is not None
    restoring = how.get("restoring", False)
    assert cpu.pause.holds(FAILED + after, changes=changes, restoring=restoring) is want


@pytest.mark.parametrize(
    ("changes", "lasting"),
    [
        pytest.param(0, True, id="is still"),
        pytest.param(1, False, id="is not once a quota has changed"),
    ],
)
def test_after_another_failure_what_was_refused_for_good(changes: int, *, lasting: bool) -> None:
    cpu = CpuRecord()
    cpu.fail(0.0, lasting=True, restoring=False, changes=0)
    cpu.fail(0.0, lasting=False, restoring=False, changes=changes)
    assert cpu.pause is not None
    assert cpu.pause.lasting is lasting


def test_each_failure_in_a_row_doubles_the_pause_up_to_a_bound() -> None:
    cpu, pauses = CpuRecord(), []
    for _ in range(6):
        cpu.fail(0.0, lasting=False, restoring=False, changes=0)
        assert cpu.pause is not None
        pauses.append(cpu.pause.until)
    assert pauses == [30, 60, 120, 240, 300, 300]


# --- who shares its nodes -------------------------------------------------------------------------

ALONE = frozenset([("a", None)])
BESIDE = frozenset([("a", None), ("b", None)])
RESIZED = frozenset([("a", 350)])


@pytest.mark.parametrize(
    ("company", "keeps_trial", "keeps_history"),
    [
        pytest.param(ALONE, True, True, id="the same pods with the same limits"),
        pytest.param(RESIZED, True, False, id="the same pods with other limits"),
        pytest.param(BESIDE, False, False, id="other pods"),
    ],
)
def test_what_was_seen_before_compares_with_nothing_after(
    company: frozenset[tuple[str, int | None]],
    *,
    keeps_trial: bool,
    keeps_history: bool,
) -> None:
    cpu = CpuRecord()
    cpu.meet(ALONE)
    cpu.trial = TRIAL
    cpu.history.take(Progress(), 350, now=0.0)
    cpu.meet(company)
    assert (cpu.trial is TRIAL) is keeps_trial
    assert bool(cpu.history.of(Measure.USE)) is keeps_history


@pytest.mark.parametrize(
    ("company", "want"),
    [
        pytest.param(RESIZED, TRIAL, id="the same pods"),
        pytest.param(BESIDE, None, id="other pods"),
    ],
)
def test_no_trial_begins_for_what_was_under_way_when_other_pods_came(
    company: frozenset[tuple[str, int | None]], want: Trial | None
) -> None:
    cpu = CpuRecord()
    cpu.meet(ALONE)
    cpu.operation = ResizeOperation(TRIAL.proposal, trial=TRIAL)
    cpu.meet(company)
    assert cpu.operation.trial is want


# --- its pods -------------------------------------------------------------------------------------

ENDED = running(1, phase="Succeeded")
LEAVING = running(1, deleting=True)
WHOLE: dict[str, tuple[tuple[Pod, ...], bool]] = {
    "all pods run": ((running(0), running(1)), True),
    "one has ended": ((running(0), ENDED), True),
    "one is missing": ((running(0),), False),
    "one is about to go": ((running(0), LEAVING), False),
    "one has not started": ((running(0), running(1, phase="Pending")), False),
    "one has no node": ((running(0), running(1, node_name="")), False),
}


@pytest.mark.parametrize(("pods", "want"), WHOLE.values(), ids=WHOLE)
def test_a_job_is_whole_when(pods: tuple[Pod, ...], *, want: bool) -> None:
    assert is_whole(TrackedJob({}, BUILT, None, JobState()), pods) is want


def test_pods_that_have_ended_or_are_about_to_go_are_not_live() -> None:
    assert live_pods((running(0), ENDED, LEAVING)) == (running(0),)


def test_the_use_of_all_live_pods_must_be_known() -> None:
    uses = Uses()
    uses.take({"worker-0": CpuUse(0.1, at=0.0, window=30.0)})
    assert all_measured((running(0), ENDED), uses)
    assert not all_measured((running(0), replace(ENDED, phase="Running")), uses)


GANG = job("TFJob").ps(1).worker(3)


def tracked(state: JobState | None = None) -> TrackedJob:
    return TrackedJob(GANG.raw, GANG.build(), None, state or JobState())


def made(state: JobState | None = None, *, asked: int = 3) -> SizeRecord:
    return size_record(tracked(state), Sizes(3, 1, 20, asked))


BY_KFEXT = {
    "kfext has not changed it": (JobState(), False),
    "kfext took workers": (JobState(asked=5, admitted=3), True),
    "another client changed it after kfext": (JobState(asked=5, admitted=4), False),
}


@pytest.mark.parametrize(("state", "by_kfext"), BY_KFEXT.values(), ids=BY_KFEXT)
def test_whether_its_size_is_by_kfext(state: JobState, *, by_kfext: bool) -> None:
    assert has_kfext_size(tracked(state)) is by_kfext


def all_of_gang(**more: Any) -> tuple[Pod, ...]:
    return tuple(pods(GANG.build(), bound="a", phase="Running", **more))


RUNS_WHOLE = {
    "all run": (all_of_gang(), True),
    "one is missing": (all_of_gang()[1:], False),
    "one is about to go": ((*all_of_gang()[1:], all_of_gang(deleting=True)[0]), False),
    "one does not run yet": ((*all_of_gang()[1:], pods(GANG.build(), bound="a")[0]), False),
    "one is there that should have gone": (
        (*all_of_gang(), pods(job("TFJob").worker(4).build(), bound="a", phase="Running")[3]),
        False,
    ),
}


@pytest.mark.parametrize(("present", "want"), RUNS_WHOLE.values(), ids=RUNS_WHOLE)
def test_a_job_is_whole(present: tuple[Pod, ...], *, want: bool) -> None:
    assert all_running(tracked(), present) is want


def test_the_workers_with_the_highest_numbers_leave_and_no_server() -> None:
    assert {pod.name for pod in leaving(all_of_gang(), 1)} == {"train-worker-1", "train-worker-2"}
    assert leaving(all_of_gang(), 3) == ()


def test_its_speed_is_known_after_thirty_seconds_at_a_size() -> None:
    size = made()
    for at, step in ((100.0, 10), (120.0, 50), (130.0, 70)):
        size.measure(Progress(step=step, at=at), restarts=0)
    assert (size.speeds, size.largest) == ({3: 2.0}, 3)


def test_steps_that_go_back_are_measured_anew() -> None:
    size = made()
    for at, step, restarts in ((100.0, 10, 0), (110.0, 5, 1), (140.0, 35, 1)):
        size.measure(Progress(step=step, at=at), restarts=restarts)
    assert size.speeds == {3: 1.0}


def test_a_speed_counts_the_steps_of_one_metric() -> None:
    size = made()
    for at, step, metric in (
        (100.0, 10, "accuracy"),
        (130.0, 13, "accuracy"),
        (160.0, 15_000, "loss"),
        (170.0, 15_100, "loss"),
    ):
        size.measure(Progress(step=step, at=at, metric=metric), restarts=0)
    assert size.speeds == {}
    size.measure(Progress(step=15_300, at=190.0, metric="loss"), restarts=0)
    assert size.speeds == {3: 10.0}


def test_no_more_speeds_are_kept_than_are_remembered() -> None:
    size = made(JobState(scale=ScaleState(speeds=dict.fromkeys(range(4, 4 + MOST_SPEEDS), 1.0))))
    for at, step in ((100.0, 10), (130.0, 40)):
        size.measure(Progress(step=step, at=at), restarts=0)
    assert len(size.speeds) == MOST_SPEEDS
    assert 3 in size.speeds


def test_what_is_recorded_of_another_size() -> None:
    state = made().state_with(JobState(), 2, cause="guard", now=50.0)
    assert (state.asked, state.admitted) == (3, 2)
    assert (state.scale.before, state.scale.changed_at, state.scale.cause) == (3, 50.0, "guard")


def test_of_the_size_that_was_asked_for_nothing_has_to_be_remembered() -> None:
    before = JobState(asked=2, admitted=3)
    state = made(before, asked=2).state_with(before, 2, cause="takeBack", now=50.0)
    assert (state.asked, state.admitted) == (0, 0)
