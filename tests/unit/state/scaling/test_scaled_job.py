"""What is known of a job whose size may change."""

from typing import Any

import pytest

from kfext.core.companion.scale import Sizes
from kfext.core.progress.reported import Progress
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.model.policy import PolicyChoice
from kfext.model.scale_state import MOST_SPEEDS, ScaleState
from kfext.state.scaling.scaled_job import (
    ScaledJob,
    all_running,
    is_ours,
    leaving,
    scaled,
)
from kfext.state.tracked_job import TrackedJob
from tests.builders import job, pods

GANG = job("TFJob").ps(1).worker(3)


def tracked(state: JobState | None = None) -> TrackedJob:
    return TrackedJob(GANG.raw, GANG.build(), None, state or JobState())


def made(state: JobState | None = None, *, asked: int = 3) -> ScaledJob:
    return scaled(tracked(state), PolicyChoice(), Sizes(3, 1, 20, asked))


OURS = {
    "kfext has not changed it": (JobState(), False),
    "kfext took workers": (JobState(asked=5, admitted=3), True),
    "somebody changed it after kfext": (JobState(asked=5, admitted=4), False),
}


@pytest.mark.parametrize(("state", "ours"), OURS.values(), ids=OURS)
def test_whether_its_size_is_by_kfext(state: JobState, *, ours: bool) -> None:
    assert is_ours(tracked(state)) is ours


def running(**more: Any) -> tuple[Pod, ...]:
    return tuple(pods(GANG.build(), bound="a", phase="Running", **more))


WHOLE = {
    "all run": (running(), True),
    "one is missing": (running()[1:], False),
    "one is about to go": ((*running()[1:], running(deleting=True)[0]), False),
    "one does not run yet": ((*running()[1:], pods(GANG.build(), bound="a")[0]), False),
    "one is there that should have gone": (
        (*running(), pods(job("TFJob").worker(4).build(), bound="a", phase="Running")[3]),
        False,
    ),
}


@pytest.mark.parametrize(("present", "want"), WHOLE.values(), ids=WHOLE)
def test_a_job_is_whole(present: tuple[Pod, ...], *, want: bool) -> None:
    assert all_running(tracked(), present) is want


def test_the_workers_with_the_highest_numbers_leave_and_no_server() -> None:
    assert {pod.name for pod in leaving(running(), 1)} == {"train-worker-1", "train-worker-2"}
    assert leaving(running(), 3) == ()


def test_its_speed_is_known_after_thirty_seconds_at_a_size() -> None:
    one = made()
    for at, step in ((100.0, 10), (120.0, 50), (130.0, 70)):
        one.measure(Progress(step=step, at=at), restarts=0)
    assert (one.speeds, one.largest) == ({3: 2.0}, 3)


def test_steps_that_go_back_are_measured_anew() -> None:
    one = made()
    for at, step, restarts in ((100.0, 10, 0), (110.0, 5, 1), (140.0, 35, 1)):
        one.measure(Progress(step=step, at=at), restarts=restarts)
    assert one.speeds == {3: 1.0}


def test_a_speed_counts_the_steps_of_one_metric() -> None:
    one = made()
    for at, step, metric in (
        (100.0, 10, "accuracy"),
        (130.0, 13, "accuracy"),
        (160.0, 15_000, "loss"),
        (170.0, 15_100, "loss"),
    ):
        one.measure(Progress(step=step, at=at, metric=metric), restarts=0)
    assert one.speeds == {}
    one.measure(Progress(step=15_300, at=190.0, metric="loss"), restarts=0)
    assert one.speeds == {3: 10.0}


def test_no_more_speeds_are_kept_than_are_remembered() -> None:
    one = made(JobState(scale=ScaleState(speeds=dict.fromkeys(range(4, 4 + MOST_SPEEDS), 1.0))))
    for at, step in ((100.0, 10), (130.0, 40)):
        one.measure(Progress(step=step, at=at), restarts=0)
    assert len(one.speeds) == MOST_SPEEDS
    assert 3 in one.speeds


def test_what_is_noted_of_another_size() -> None:
    state = made().noted(2, cause="guard", now=50.0)
    assert (state.asked, state.admitted) == (3, 2)
    assert (state.scale.before, state.scale.changed_at, state.scale.cause) == (3, 50.0, "guard")


def test_of_the_size_that_was_asked_for_nothing_has_to_be_remembered() -> None:
    state = made(JobState(asked=2, admitted=3), asked=2).noted(2, cause="takeBack", now=50.0)
    assert (state.asked, state.admitted) == (0, 0)
