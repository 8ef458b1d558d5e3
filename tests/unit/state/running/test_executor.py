"""The base class of executors: the jobs that it follows, its scans and its conditions."""

from collections.abc import Collection

import pytest

from kfext import names
from kfext.core.settings.table import Settings
from kfext.model.job_state import JobState
from kfext.model.moment import Moment
from kfext.model.policy import PolicyChoice
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.running.executor import Executor, Steps
from kfext.state.running.policy import Condition
from kfext.state.running.proposal import Chosen, Proposal
from kfext.state.running.registry import POLICIES
from kfext.state.running.running_job import RunningJob
from kfext.state.running.running_jobs import RunningJobs
from tests.builders import job

NOW = Moment(wall=0.0, monotonic=0.0)


class Recording(Executor):
    """Follows the jobs `wanted`, and records the uids of added and removed jobs."""

    scan_seconds = 5.0
    condition = Condition("Recorded", "Record", "RecordRefused", frozenset({"RecordRefused"}))

    def __init__(self, running: RunningJobs) -> None:
        super().__init__(running)
        self.wanted: Collection[str] = ()
        self.added: list[str] = []
        self.removed: list[str] = []
        self.fails_on = ""

    def follows(
        self, tracked: TrackedJob, chosen: dict[str, PolicyChoice], job: RunningJob | None
    ) -> bool:
        if tracked.job.uid == self.fails_on:
            raise KeyError("a bug")
        return tracked.job.uid in self.wanted

    def on_added(self, job: RunningJob, now: Moment) -> None:
        self.added.append(job.uid)

    def on_removed(self, job: RunningJob, now: Moment) -> None:
        self.removed.append(job.uid)

    def advance(self, now: Moment) -> Steps:
        return []

    def propose(self, now: Moment) -> list[Proposal]:
        return []

    def begin(self, chosen: Chosen, now: Moment) -> Steps:
        return []

    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        pass


@pytest.fixture
def running() -> RunningJobs:
    planner = Planner()
    for uid in ("a", "b"):
        training = job(name=uid, uid=uid).worker(1).build()
        planner.cluster.jobs[uid] = TrackedJob({}, training, None, JobState())
    parts = planner.cluster, planner.queue, planner.progress
    return RunningJobs(*parts, lambda _: Settings(), POLICIES)


def test_a_job_is_added_once_and_removed_once(running: RunningJobs) -> None:
    executor = Recording(running)
    executor.wanted = {"a"}
    for _ in range(2):
        executor.enrol(NOW)
    executor.wanted = {"b"}
    executor.enrol(NOW)
    followed = executor.added, executor.removed, list(executor.jobs)
    assert followed == (["a", "b"], ["a"], ["b"])


def test_the_policies_of_a_job_follow_its_settings(running: RunningJobs) -> None:
    tracked, settings = running.tracked["a"], Settings(managed=True)
    tracked.phase, running.settings_of = names.PLACED, lambda _: settings
    assert running.policies(tracked) == {}
    settings = Settings(managed=True, migrate="checkpointed")
    assert list(running.policies(tracked)) == ["migrate"]


def test_an_executor_scans_all_jobs_at_an_interval(running: RunningJobs) -> None:
    executor, scans = Recording(running), []
    executor.wanted = {"a"}
    for at in (0.0, 4.0, 5.0, 11.0):
        executor.begin_turn(Moment(wall=at, monotonic=at))
        scans.append(executor.scanning)
    assert scans == [True, False, True, True]
    assert (executor.next_turn_at(), executor.added) == (16.0, ["a"])


def test_executors_that_follow_the_same_job_share_its_record(running: RunningJobs) -> None:
    first, second = Recording(running), Recording(running)
    first.wanted = second.wanted = {"a"}
    first.enrol(NOW)
    second.enrol(NOW)
    assert first.jobs["a"] is second.jobs["a"]


@pytest.mark.parametrize("followed", [True, False])
def test_an_error_about_a_job_leaves_it_followed_or_not_as_before(
    running: RunningJobs, *, followed: bool
) -> None:
    executor = Recording(running)
    executor.wanted = {"a", "b"} if followed else {"b"}
    executor.enrol(NOW)
    executor.fails_on, executor.wanted = "a", {"b"} if followed else {"a", "b"}
    executor.enrol(NOW)
    assert ("a" in executor.jobs) is followed
    assert "b" in executor.jobs
    assert [tracked.job.uid for tracked, _ in running.failures.take()] == ["a"]


def test_the_condition_of_an_unfollowed_job_is_removed_once(running: RunningJobs) -> None:
    executor = Recording(running)
    executor.wanted = {"a", "b"}
    executor.enrol(NOW)
    executor.wanted = {"b"}
    for _ in range(2):
        executor.enrol(NOW)
    news = [(tracked.job.uid, type_, shown) for tracked, type_, shown in running.shown.news()]
    assert news == [("a", "Recorded", None)]
