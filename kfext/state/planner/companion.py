"""The companion: it changes running jobs. It sleeps until a job asks for a change.

A job asks by its settings, or by the marks of a change that an earlier controller made.
"""

import math
from collections.abc import Callable

from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.executor import Steps
from kfext.state.running.loop import ChangeLoop
from kfext.state.running.running_jobs import News
from kfext.state.waiting.queue import Queue


class Companion:
    """The `loop` over running jobs, made when the first job asks for a change."""

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self._cluster = cluster
        self._settings_of = settings_of
        self._parts = cluster, queue, progress, settings_of
        self.loop: ChangeLoop | None = None

    def adopt(self, now: Moment) -> None:
        """Go on with the changes of an earlier controller."""
        self._awake(now)

    def _awake(self, now: Moment) -> ChangeLoop | None:
        if self.loop is None:
            jobs = self._cluster.jobs.values()
            if any(tracked.changes_shown(self._settings_of(tracked)) for tracked in jobs):
                self.loop = ChangeLoop(*self._parts)
                self.loop.adopt(now)
        return self.loop

    def steps(self, now: Moment) -> Steps:
        """Return the steps to write now; each job is busy until `finish`."""
        loop = self._awake(now)
        return loop.steps(now) if loop else []

    @property
    def failures(self) -> list[tuple[TrackedJob, Exception]]:
        """The errors of kfext in the last `steps`, each with a job."""
        return self.loop.failures if self.loop else []

    def next_look(self) -> float:
        """Return when the next turn is due, in monotonic seconds; infinity: never."""
        return self.loop.next_look() if self.loop else math.inf

    def keeps_room(self, uid: str) -> bool:
        """Return whether a job was stopped for a change, so that it keeps its hold."""
        return self.loop is not None and self.loop.keeps_room(uid)

    def may_return(self, uid: str) -> bool:
        """Return whether a job that was stopped may start where it was."""
        return self.loop is not None and self.loop.may_return(uid)

    def finish(self, uid: str, by: str, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a step of a job.

        `by`: the condition of the executor. `final`: why the API server would refuse it again.
        """
        if self.loop:
            self.loop.finish(uid, by, complete=complete, final=final, now=now)

    def news(self) -> list[News]:
        """Return the conditions to show that changed since the last call."""
        return self.loop.news() if self.loop else []
