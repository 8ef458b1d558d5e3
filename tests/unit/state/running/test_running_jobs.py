"""The changes of the conditions of running jobs."""

from kfext import names
from kfext.model.job_state import JobState
from kfext.model.verdict import Verdict
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.running_job import RunningJob
from kfext.state.running.running_jobs import ShownConditions
from tests.builders import job as builder

MOVED = ConditionStatus(holds=True, verdict=Verdict(names.REASON_CPU_MOVED, "why"))


def running(uid: str) -> RunningJob:
    return RunningJob(TrackedJob({}, builder(uid=uid).worker(1).build(), None, JobState()))


def test_a_changed_condition_is_returned_once() -> None:
    shown, job = ShownConditions(), running("a")
    for _ in range(2):
        shown.show(job, names.RESIZED, MOVED)
    assert shown.news() == [(job.tracked, names.RESIZED, MOVED)]
    shown.show(job, names.RESIZED, MOVED)
    assert shown.news() == []
