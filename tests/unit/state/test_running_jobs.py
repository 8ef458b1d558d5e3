"""What is shown of jobs that run, and when that is news."""

from kfext import names
from kfext.core.companion.policy import Shown
from kfext.model.job_state import JobState
from kfext.model.verdict import Verdict
from kfext.state.running_job import RunningJob
from kfext.state.running_jobs import ShownJobs
from kfext.state.tracked_job import TrackedJob
from tests.builders import job

MOVED = Shown(holds=True, verdict=Verdict(names.REASON_CPU_MOVED, "why"))


def running(uid: str) -> RunningJob:
    return RunningJob(TrackedJob({}, job(uid=uid).worker(1).build(), None, JobState()))


def test_what_is_shown_is_news_once() -> None:
    shown, of = ShownJobs(), running("a")
    for _ in range(2):
        shown.show(of, names.RESIZED, MOVED)
    assert shown.news() == [(of.tracked, names.RESIZED, MOVED)]
    shown.show(of, names.RESIZED, MOVED)
    assert shown.news() == []


def test_of_jobs_that_are_not_followed_nothing_is_shown_any_more() -> None:
    shown, followed, left = ShownJobs(), running("a"), running("b")
    among = {"a": followed.tracked, "b": left.tracked}
    shown.show(left, names.RESIZED, MOVED)
    for _ in range(2):
        shown.follow(names.RESIZED, {"a"}, among)
    assert shown.news() == [(left.tracked, names.RESIZED, None)]
    shown.follow(names.RESIZED, set(), among)
    assert shown.news() == [(followed.tracked, names.RESIZED, None)]
