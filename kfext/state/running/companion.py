"""The companion: the loop that changes running jobs.

Each turn: operations go on, policies propose, one choice is made for all, and the chosen proposals
begin, at most one for each job. An executor carries out each kind of change. Only jobs with running
pods change, so no placement waits.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import assert_never

from kfext.core.elastic import starts_anew
from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.arbitration import Chosen, arbitrate
from kfext.state.running.cpu.executor import CpuExecutor
from kfext.state.running.executor import Executor, Steps
from kfext.state.running.move.executor import MoveExecutor
from kfext.state.running.operation import Phase
from kfext.state.running.proposal import Change, Move, PodSizes, Proposal, Workers
from kfext.state.running.room import ScaleRoom
from kfext.state.running.running_jobs import News, RunningJobs
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.scale_search import ScaleSearch
from kfext.state.waiting.queue import Queue


class Companion:
    """Decides on the jobs that opted in.

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
        self._running = running = RunningJobs(cluster, settings_of)
        room = ScaleRoom(cluster, queue, settings_of)
        search = ScaleSearch(queue, room, progress, settings_of)
        self.sizes = SizeExecutor(running, cluster, queue, progress, search)
        self.moves = MoveExecutor(running, cluster, queue, progress, search)
        self.cpu = CpuExecutor(running, cluster, queue, progress)
        self._executors: tuple[Executor, ...] = (self.sizes, self.moves, self.cpu)

    def adopt(self, now: Moment) -> None:
        """Go on with the changes of an earlier controller, and keep the room of stopped jobs."""
        self.sizes.enrol(now)
        self.moves.enrol(now)

    def keeps_room(self, uid: str) -> bool:
        """Return whether a job was stopped for a move or a size, so that it keeps its promise."""
        job = self.sizes.jobs.get(uid)
        if job is None or job.size.phase is not Phase.SETTLING:
            return self.moves_now(uid)
        return starts_anew(job.tracked.job) or self.moves_now(uid)

    def moves_now(self, uid: str) -> bool:
        """Return whether a move of a job is under way."""
        job = self.moves.jobs.get(uid)
        return job is not None and job.move.operation is not None

    def steps(self, now: Moment) -> Steps:
        """Return the steps to write now; each job is busy until `finish`."""
        steps: Steps = []
        for executor in self._executors:
            with self._keeping(steps):
                executor.look(now)
                steps += _decided(executor, executor.advance(now), now)
        proposals: list[Proposal] = []
        for executor in self._executors:
            with self._keeping(steps):
                proposals += executor.propose(now)
        chosen = arbitrate(proposals, self._running.signals(proposals))
        for executor in self._executors:
            with self._keeping(steps):
                steps += _decided(executor, executor.begin(self._part(chosen, executor), now), now)
        self.failures = self._running.failures.take()
        return steps

    def next_look(self) -> float:
        """Return when the next turn is due, in monotonic seconds; infinity: never."""
        return min(executor.next_look() for executor in self._executors)

    def finish(self, uid: str, by: str, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a step of a job.

        `by`: the condition of the executor. `final`: why the API server would refuse it again.
        """
        for executor in self._executors:
            job = executor.jobs.get(uid)
            if job is not None and executor.condition.type == by:
                executor.finish(job, complete=complete, final=final, now=now)

    def news(self) -> list[News]:
        """Return the conditions to show that changed since the last call."""
        return self._running.shown.news()

    def _part(self, chosen: Chosen, executor: Executor) -> Chosen:
        """Return the chosen proposals that an executor carries out."""
        act, observe = (
            tuple(proposal for proposal in part if self._executor_of(proposal.change) is executor)
            for part in (chosen.act, chosen.observe)
        )
        return Chosen(act, observe)

    def _executor_of(self, change: Change) -> Executor:
        match change:
            case PodSizes():
                return self.cpu
            case Workers():
                return self.sizes
            case Move():
                return self.moves
            case _:
                assert_never(change)

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
