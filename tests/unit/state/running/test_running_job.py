"""The companion's record of a running job."""

from typing import Any

import pytest

from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.running_job import (
    all_running,
    has_kfext_size,
    is_whole,
    leaving,
    live_pods,
)
from tests.builders import job, pods
from tests.unit.state.running.pods import running

TWO_WORKERS = job("TFJob", uid="j").worker(2).resumed().build()
ENDED = running(1, phase="Succeeded")
LEAVING = running(1, deleting=True)
WHOLE: dict[str, tuple[tuple[Pod, ...], bool]] = {
    "all pods run": ((running(0), running(1)), True),
    "a pod has ended": ((running(0), ENDED), True),
    "a pod is missing": ((running(0),), False),
    "a pod is being deleted": ((running(0), LEAVING), False),
    "a pod has not started": ((running(0), running(1, phase="Pending")), False),
    "a pod has no node": ((running(0), running(1, node_name="")), False),
}


@pytest.mark.parametrize(("pods", "want"), WHOLE.values(), ids=WHOLE)
def test_a_job_is_whole_if_each_pod_runs_or_has_ended(pods: tuple[Pod, ...], *, want: bool) -> None:
    assert is_whole(TrackedJob({}, TWO_WORKERS, None, JobState()), pods) is want


def test_ended_and_terminating_pods_are_not_live() -> None:
    assert live_pods((running(0), ENDED, LEAVING)) == (running(0),)


GANG = job("TFJob").ps(1).worker(3)


def tracked(state: JobState | None = None) -> TrackedJob:
    return TrackedJob(GANG.raw, GANG.build(), None, state or JobState())


BY_KFEXT = {
    "kfext has not changed it": (JobState(), False),
    "kfext removed workers": (JobState(requested=5, assigned=3), True),
    "another client changed it after kfext": (JobState(requested=5, assigned=4), False),
}


@pytest.mark.parametrize(("state", "by_kfext"), BY_KFEXT.values(), ids=BY_KFEXT)
def test_whether_kfext_set_the_size(state: JobState, *, by_kfext: bool) -> None:
    assert has_kfext_size(tracked(state)) is by_kfext


def gang_pods(**more: Any) -> tuple[Pod, ...]:
    return tuple(pods(GANG.build(), bound="a", phase="Running", **more))


ALL_RUNNING = {
    "all pods run": (gang_pods(), True),
    "a pod is missing": (gang_pods()[1:], False),
    "a pod is being deleted": ((*gang_pods()[1:], gang_pods(deleting=True)[0]), False),
    "a pod does not run yet": ((*gang_pods()[1:], pods(GANG.build(), bound="a")[0]), False),
    "a pod remains that should be deleted": (
        (*gang_pods(), pods(job("TFJob").worker(4).build(), bound="a", phase="Running")[3]),
        False,
    ),
}


@pytest.mark.parametrize(("present", "want"), ALL_RUNNING.values(), ids=ALL_RUNNING)
def test_whether_exactly_the_pods_of_a_job_run(present: tuple[Pod, ...], *, want: bool) -> None:
    assert all_running(tracked(), present) is want


def test_the_workers_with_the_highest_indices_leave_and_no_server() -> None:
    assert {pod.name for pod in leaving(gang_pods(), 1)} == {"train-worker-1", "train-worker-2"}
    assert leaving(gang_pods(), 3) == ()
