"""The base class of the executors, which change running jobs and show a condition on each job."""

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
"""The longest time between two turns of the companion; a turn calls each executor once."""
SCAN_SECONDS = 5.0
"""The default time between two scans; a scan is a turn in which an executor checks all jobs."""
FOLLOW_SECONDS = 1.0
"""The time between two turns while a change waits for pods or checkpoints."""

Steps = list[tuple[TrackedJob, Step]]


class Executor(ABC):
    """Follows jobs and carries out one kind of change.

    In each turn the companion calls `begin_turn`, `advance`, `propose` and `begin`, in this order,
    and then `finish` with the outcome of each step. Work on a single job runs within
    `running.failures.collect_errors_of(job.tracked)`, so that an error does not affect other jobs.
    `change`: the kind of change. `condition`: the condition that it shows on the followed jobs.
    `scan_seconds`: the seconds between two scans. `scanning`: whether this turn is a scan.
    `jobs`: the followed jobs, by uid.
    """

    change: ClassVar[type[Change]]
    condition: ClassVar[Condition]
    scan_seconds: ClassVar[float] = SCAN_SECONDS

    def __init__(self, running: RunningJobs) -> None:
        self.jobs: dict[str, RunningJob] = {}
        self.running = running
        self._cluster, self._queue = running.cluster, running.queue
        self._progress = running.progress
        self.scanning = False
        self.scanned_at = self._turned = -math.inf
        running.follow(self.jobs)

    def begin_turn(self, now: Moment) -> None:
        """Begin a turn; if a scan is due, also update the set of followed jobs."""
        self._turned = now.monotonic
        due = now.monotonic - self.scanned_at >= self.scan_seconds
        self.scanning = due or self.needs_early_scan()
        if self.scanning:
            self.scanned_at = now.monotonic
            self.enrol(now)

    def needs_early_scan(self) -> bool:
        """Return whether a scan is needed before it is due."""
        return False

    def next_turn_at(self) -> float:
        """Return when the next turn is due, in monotonic seconds; infinity without jobs."""
        if self.changing:
            return min(self.scanned_at + self.scan_seconds, self._turned + FOLLOW_SECONDS)
        return self.scanned_at + self.scan_seconds if self.jobs else math.inf

    @property
    def changing(self) -> bool:
        """Whether a change is in progress, so that turns are more frequent."""
        return False

    def enrol(self, now: Moment) -> None:
        """Update the set of followed jobs; an error of kfext about a job leaves it as it was."""
        before, after = dict(self.jobs), dict[str, RunningJob]()
        for uid, tracked in self.running.tracked.items():
            job = before.get(uid)
            with self.running.failures.collect_errors_of(tracked):
                job = self._enrol(tracked, job, now)
            if job is not None:
                after[uid] = job
        for uid in before.keys() - after.keys():
            self.on_removed(before[uid], now)
            self.running.shown.hide(before[uid].tracked, self.condition.type)
        self.jobs.clear()
        self.jobs.update(after)
        self.running.forget_gone()

    def _enrol(self, tracked: TrackedJob, job: RunningJob | None, now: Moment) -> RunningJob | None:
        chosen = self.running.policies(tracked)
        if not self.follows(tracked, chosen, job):
            return None
        if job is None:
            job = self.running.record(tracked)
            job.shown.pop(self.condition.type, None)
            self.on_added(job, now)
        job.chosen = chosen
        return job

    def keeps_hold(self, uid: str) -> bool:
        """Return whether a job was stopped for a change and keeps the hold on its capacity."""
        return False

    def may_return(self, uid: str) -> bool:
        """Return whether a stopped job may start again on its former nodes."""
        return False

    @abstractmethod
    def follows(
        self, tracked: TrackedJob, chosen: dict[str, PolicyChoice], job: RunningJob | None
    ) -> bool:
        """Return whether to follow a job; `job`: its record, or None before it is followed."""

    @abstractmethod
    def on_added(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow a job."""

    @abstractmethod
    def on_removed(self, job: RunningJob, now: Moment) -> None:
        """Stop following a job."""

    @abstractmethod
    def advance(self, now: Moment) -> Steps:
        """Return the next steps of the operations in progress."""

    @abstractmethod
    def propose(self, now: Moment) -> Sequence[Proposal]:
        """Return the policies' proposals for jobs without an operation."""

    @abstractmethod
    def begin(self, chosen: Chosen, now: Moment) -> Steps:
        """Begin the chosen proposals, and return their first steps."""

    @abstractmethod
    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a step; `final`: the API server's permanent refusal, or empty."""
