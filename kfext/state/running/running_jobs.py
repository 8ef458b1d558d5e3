"""The running jobs that executors follow, and the changes of their conditions."""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence

from kfext.core.settings.table import Settings
from kfext.model.policy import PolicyChoice
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import Failures, TrackedJob
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.policy import ConditionStatus, Policy, chosen_policies
from kfext.state.running.proposal import Proposal
from kfext.state.running.running_job import Restart, RunningJob
from kfext.state.running.signals import JobSignal, Signals
from kfext.state.waiting.queue import Queue

News = tuple[TrackedJob, str, ConditionStatus | None]
"""A job, the type of a changed condition, and its new status. None removes the condition."""


class ShownConditions:
    """Collects the changes of conditions that are not written yet."""

    def __init__(self) -> None:
        self._news: dict[tuple[str, str], News] = {}

    def show(self, job: RunningJob, type_: str, shown: ConditionStatus | None) -> None:
        """Set the status of a condition of a job; None removes the condition."""
        if shown != job.shown.get(type_):
            job.shown[type_] = shown
            self._news[job.uid, type_] = job.tracked, type_, shown

    def hide(self, tracked: TrackedJob, type_: str) -> None:
        """Remove a condition that an earlier controller may have written."""
        self._news[tracked.job.uid, type_] = tracked, type_, None

    def news(self) -> list[News]:
        """Return the conditions that changed since the last call."""
        news, self._news = self._news, {}
        return list(news.values())


class RunningJobs:
    """The jobs that executors follow; the executors of a job share its record.

    `cluster`, `queue`, `progress`: the state of the jobs. `shown`: the changes of conditions.
    `failures`: the errors of kfext about single jobs. `settings_of` returns the settings of a job.
    `policies`: all policies of the companion.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
        policies: Sequence[Policy],
    ) -> None:
        self.cluster, self.queue, self.progress = cluster, queue, progress
        self.shown = ShownConditions()
        self.failures = Failures()
        self.settings_of = settings_of
        self._all = policies
        self._followed: ChainMap[str, RunningJob] = ChainMap()
        self._chosen: dict[str, tuple[Settings, dict[str, PolicyChoice]]] = {}

    def follow(self, followed: dict[str, RunningJob]) -> None:
        """Register the jobs that an executor follows, by uid; it keeps the mapping up to date."""
        self._followed.maps.append(followed)

    @property
    def tracked(self) -> Mapping[str, TrackedJob]:
        """All jobs of the cluster, by uid."""
        return self.cluster.jobs

    def record(self, tracked: TrackedJob) -> RunningJob:
        """Return the record of a job; a job that no executor follows gets a new record."""
        return self._followed.get(tracked.job.uid) or RunningJob(
            tracked, restart=Restart(downtime=tracked.state.scale.pause)
        )

    def policies(self, tracked: TrackedJob) -> dict[str, PolicyChoice]:
        """Return the policies that are not off for a job, by name."""
        if tracked.phase is None or tracked.job.released or tracked.job.finished:
            return {}
        uid, settings = tracked.job.uid, self.settings_of(tracked)
        known = self._chosen.get(uid)
        if known is None or known[0] is not settings:
            known = self._chosen[uid] = (settings, chosen_policies(self._all, settings))
        return known[1]

    def forget_gone(self) -> None:
        """Forget the policies of jobs that were deleted."""
        for uid in self._chosen.keys() - self.tracked.keys():
            del self._chosen[uid]

    def signals(self, proposals: Iterable[Proposal]) -> Signals:
        """Return the signals that `arbitrate` needs about the jobs with proposals."""
        uids = {proposal.job for proposal in proposals} & self._followed.keys()
        return Signals({}, tuple(_signal(self._followed[uid]) for uid in uids))


def _signal(job: RunningJob) -> JobSignal:
    return JobSignal(job.uid, policies=job.chosen, disabled=frozenset(job.disabled))
