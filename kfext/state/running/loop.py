"""The loop that changes running jobs.

Each turn: operations go on, policies propose, one choice is made for all, and the chosen proposals
begin, at most one for each job. An executor carries out each kind of change. Only jobs with running
pods change, so no placement waits.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.cpu.executor import CpuExecutor
from kfext.state.running.executor import Executor, Steps
from kfext.state.running.move.executor import MoveExecutor
from kfext.state.running.proposal import Proposal, arbitrate
from kfext.state.running.registry import POLICIES
from kfext.state.running.room import ScaleRoom
from kfext.state.running.running_jobs import News, RunningJobs
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.scale import SCALE
from kfext.state.running.size.scale_search import ScaleSearch
from kfext.state.waiting.queue import Queue


class ChangeLoop:
    """Changes the jobs that opted in.

    `executors`: one for each kind of change.
    `failures`: errors of kfext in the last `steps`, each with a job.
    `settings_of` returns the settings of a job.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self.failures: list[tuple[TrackedJob, Exception]] = []
        self._running = running = RunningJobs(cluster, settings_of, POLICIES)
        room = ScaleRoom(
            cluster, queue, settings_of, lambda settings: SCALE.parameter(settings, "wait")
        )
        search = ScaleSearch(queue, room, progress, settings_of)
        self.executors: tuple[SizeExecutor, MoveExecutor, CpuExecutor] = (
            SizeExecutor(running, cluster, queue, progress, search),
            MoveExecutor(running, cluster, queue, progress, room),
            CpuExecutor(running, cluster, queue, progress),
        )

    def adopt(self, now: Moment) -> None:
        """Go on with the changes of an earlier controller, and hold capacity for stopped jobs."""
        for executor in self.executors:
            executor.enrol(now)

    def keeps_room(self, uid: str) -> bool:
        """Return whether a job was stopped for a change, so that it keeps its hold."""
        return any(executor.keeps_room(uid) for executor in self.executors)

    def may_return(self, uid: str) -> bool:
        """Return whether a job that was stopped may start where it was."""
        return any(executor.may_return(uid) for executor in self.executors)

    def steps(self, now: Moment) -> Steps:
        """Return the steps to write now; each job is busy until `finish`."""
        steps: Steps = []
        for executor in self.executors:
            with self._keeping(steps):
                executor.look(now)
                steps += _decided(executor, executor.advance(now), now)
        proposals: list[Proposal] = []
        for executor in self.executors:
            with self._keeping(steps):
                proposals += executor.propose(now)
        chosen = arbitrate(proposals, self._running.signals(proposals))
        for executor in self.executors:
            with self._keeping(steps):
                steps += _decided(executor, executor.begin(chosen.part(executor.change), now), now)
        self.failures = self._running.failures.take()
        return steps

    def next_look(self) -> float:
        """Return when the next turn is due, in monotonic seconds; infinity: never."""
        return min(executor.next_look() for executor in self.executors)

    def finish(self, uid: str, by: str, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a step of a job.

        `by`: the condition of the executor. `final`: why the API server would refuse it again.
        """
        for executor in self.executors:
            job = executor.jobs.get(uid)
            if job is not None and executor.condition.type == by:
                executor.finish(job, complete=complete, final=final, now=now)

    def news(self) -> list[News]:
        """Return the conditions to show that changed since the last call."""
        return self._running.shown.news()

    def _keeping(self, steps: Steps) -> AbstractContextManager[None]:
        """Collect an error of an executor if steps of others would be lost with it.

        Without an answer the jobs of these steps would be busy without end.
        """
        return self._running.failures.about(steps[0][0]) if steps else nullcontext()


def _decided(executor: Executor, steps: Steps, now: Moment) -> Steps:
    for tracked, step in steps:
        tracked.decide(step, at=now.monotonic)
        tracked.executor = executor.condition.type
    return steps
