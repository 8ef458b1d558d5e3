"""An executor: what carries out one kind of change of running jobs, and shows one condition."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from kfext.core.lifecycle.steps import Step
from kfext.model.moment import Moment
from kfext.model.policy import PolicyChoice
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.policy import Condition
from kfext.state.running.proposal import Change, Chosen, Proposal
from kfext.state.running.running_job import RunningJob
from kfext.state.running.running_jobs import RunningJobs

TURN_SECONDS = 10.0
"""The companion has a turn at least this often, whatever is left to decide."""
LOOK_SECONDS = 5.0
"""Seconds between two looks at all jobs, unless an executor names another time."""
FOLLOW_SECONDS = 1.0
"""Seconds between two turns while a change is under way that pods or checkpoints hold up."""

Steps = list[tuple[TrackedJob, Step]]


class Executor(ABC):
    """Follows jobs and carries out one kind of change of them.

    The companion calls, in this order, `look`, `advance`, `propose` and `begin` in each turn, and
    `finish` with the outcome of each step. An error of kfext about one job must not affect other
    jobs: what is done for a job is done within `running.failures.about(job.tracked)`.
    `change`: the kind of change that it carries out.
    `condition`: the condition that tells of the jobs that the executor follows.
    `look_seconds`: the time between two looks at all jobs.
    `jobs`: the followed jobs, by uid.
    `looks`: whether this turn is a look.
    """

    change: ClassVar[type[Change]]
    condition: ClassVar[Condition]
    look_seconds: ClassVar[float] = LOOK_SECONDS

    def __init__(self, running: RunningJobs) -> None:
        self.jobs: dict[str, RunningJob] = {}
        self.running = running
        self._cluster, self._queue = running.cluster, running.queue
        self._progress = running.progress
        self.looks = False
        self.looked = self._turned = -math.inf
        running.follow(self.jobs)

    def look(self, now: Moment) -> None:
        """Begin a turn; in a look, find the jobs to follow."""
        at = self._turned = now.monotonic
        self.looks = at - self.looked >= self.look_seconds or self.looks_early()
        if self.looks:
            self.looked = at
            self.enrol(now)

    def looks_early(self) -> bool:
        """Return whether a look cannot wait."""
        return False

    def next_look(self) -> float:
        """Return when the next turn is due, in monotonic seconds; infinity: no job is followed."""
        if self.changing:
            return min(self.looked + self.look_seconds, self._turned + FOLLOW_SECONDS)
        return self.looked + self.look_seconds if self.jobs else math.inf

    @property
    def changing(self) -> bool:
        """Whether a change is under way that is followed more often."""
        return False

    def enrol(self, now: Moment) -> None:
        """Follow the jobs that are to be followed now, and only these.

        After an error of kfext about a job, nothing changes for the job.
        """
        before, after = dict(self.jobs), dict[str, RunningJob]()
        for uid, tracked in self.running.tracked.items():
            job = before.get(uid)
            with self.running.failures.about(tracked):
                job = self._enrolled(tracked, job, now)
            if job is not None:
                after[uid] = job
        for uid in before.keys() - after.keys():
            self.on_removed(before[uid], now)
            self.running.shown.hide(before[uid].tracked, self.condition.type)
        self.jobs.clear()
        self.jobs.update(after)
        self.running.forget_gone()

    def _enrolled(
        self, tracked: TrackedJob, job: RunningJob | None, now: Moment
    ) -> RunningJob | None:
        chosen = self.running.policies(tracked)
        if not self.follows(tracked, chosen, job):
            return None
        if job is None:
            job = self.running.record(tracked)
            job.shown.pop(self.condition.type, None)
            self.on_added(job, now)
        job.chosen = chosen
        return job

    def keeps_room(self, uid: str) -> bool:
        """Return whether it has stopped a job for a change, so that the job keeps its hold."""
        return False

    def may_return(self, uid: str) -> bool:
        """Return whether a job that it has stopped may start where it was."""
        return False

    @abstractmethod
    def follows(
        self, tracked: TrackedJob, chosen: dict[str, PolicyChoice], job: RunningJob | None
    ) -> bool:
        """Return whether a job is to be followed; `job`: its record if it is followed now."""

    @abstractmethod
    def on_added(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow a job."""

    @abstractmethod
    def on_removed(self, job: RunningJob, now: Moment) -> None:
        """Stop following a job."""

    @abstractmethod
    def advance(self, now: Moment) -> Steps:
        """Return the next steps of the operations that are under way."""

    @abstractmethod
    def propose(self, now: Moment) -> Sequence[Proposal]:
        """Return the proposals of the policies for the jobs that are free to change."""

    @abstractmethod
    def begin(self, chosen: Chosen, now: Moment) -> Steps:
        """Begin the chosen proposals; return their first steps."""

    @abstractmethod
    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a step; `final`: why the API server would refuse it again."""
