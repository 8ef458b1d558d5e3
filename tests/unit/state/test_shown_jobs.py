"""What is to be shown of jobs that are followed: each news once, and none of those left alone."""

from dataclasses import dataclass

from kfext import names
from kfext.core.companion.policy import Shown
from kfext.model.job_state import JobState
from kfext.model.verdict import Verdict
from kfext.state.shown_jobs import ShownJobs
from kfext.state.tracked_job import TrackedJob
from tests.builders import job

MOVED = Shown(holds=True, verdict=Verdict(names.REASON_CPU_MOVED, "why"))


@dataclass
class One:
    tracked: TrackedJob
    shown: Shown | None = None


def one(uid: str) -> One:
    return One(TrackedJob({}, job(uid=uid).worker(1).build(), None, JobState()))


def test_what_is_shown_is_news_once() -> None:
    shown, of = ShownJobs(), one("a")
    for _ in range(2):
        shown.show(of, MOVED)
    assert shown.news() == [(of.tracked, MOVED)]
    shown.show(of, MOVED)
    assert shown.news() == []


def test_of_jobs_that_are_not_followed_nothing_is_shown_any_more() -> None:
    shown, followed, left = ShownJobs(), one("a"), one("b")
    among = {"a": followed.tracked, "b": left.tracked}
    shown.show(left, MOVED)
    for _ in range(2):
        shown.follow({"a"}, among)
    assert shown.news() == [(left.tracked, None)]
    shown.follow(set(), among)
    assert shown.news() == [(followed.tracked, None)]
