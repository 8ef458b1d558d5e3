"""The companion: it changes running jobs.

Each kind of change has an executor, created once the settings of a job allow the kind or the marks
of a job show such a change of an earlier controller. In each turn, operations advance, policies
make proposals, arbitration chooses among all proposals, and the chosen changes begin, at most one
for each job. Only jobs with running pods change, so no placement waits.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import product

from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.names import MOVED, RESIZED, SCALED, STOPPED
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.capacity_search import CapacitySearch
from kfext.state.running.cpu.executor import CpuExecutor
from kfext.state.running.executor import Executor, Steps
from kfext.state.running.move.executor import MoveExecutor
from kfext.state.running.operation import Phase
from kfext.state.running.proposal import Proposal, arbitrate
from kfext.state.running.registry import POLICIES
from kfext.state.running.running_job import RunningJob
from kfext.state.running.running_jobs import News, RunningJobs
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.scale import SCALE
from kfext.state.running.size.scale_search import ScaleSearch
from kfext.state.running.stop.executor import StopExecutor
from kfext.state.running.stop.stopping import Preempted
from kfext.state.waiting.queue import Queue

OUTCOMES = ("done", "restored", "refused", "failed")
"""The outcomes of a change: written, written to revert an earlier change, refused by the API server
for good, or failed in another way."""


class Companion:
    """Changes the jobs that opted in.

    `executors`: the executors by the type of their condition, in the order of their turns.
    `changes`: the number of changes, by policy and outcome.
    `failures`: the errors of kfext in the last call of `steps`, each with a job.
    `settings_of` returns the settings of a job.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self.executors: dict[str, Executor] = {}
        self.failures: list[tuple[TrackedJob, Exception]] = []
        policies = (policy.name for policy in POLICIES)
        self.changes = Counter(dict.fromkeys(product(policies, OUTCOMES), 0))
        self._cluster = cluster
        self._queue = queue
        self._progress = progress
        self._settings_of = settings_of
        self._factories: dict[str, Callable[[], Executor]] = {
            SCALED: self._size_executor,
            STOPPED: self._stop_executor,
            MOVED: lambda: MoveExecutor(self._running, self._capacity),
            RESIZED: lambda: CpuExecutor(self._running),
        }

    def _size_executor(self) -> SizeExecutor:
        return SizeExecutor(self._running, ScaleSearch(self._running, self._capacity))

    def _stop_executor(self) -> StopExecutor:
        return StopExecutor(self._running, self._capacity, rescues=self._rescues)

    def _rescues(self, uid: str) -> bool:
        """Return whether donors are about to be scaled down for a waiting job."""
        executor = self.executors.get(SCALED)
        return isinstance(executor, SizeExecutor) and executor.rescues(uid)

    @cached_property
    def _running(self) -> RunningJobs:
        parts = self._cluster, self._queue, self._progress
        return RunningJobs(*parts, self._settings_of, POLICIES)

    @cached_property
    def _capacity(self) -> CapacitySearch:
        return CapacitySearch(
            self._cluster,
            self._queue,
            self._settings_of,
            lambda settings: SCALE.parameter(settings, "wait"),
        )

    @property
    def preempted(self) -> Preempted:
        """The jobs that were stopped for waiting jobs so far."""
        executor = self.executors.get(STOPPED)
        return executor.preempted if isinstance(executor, StopExecutor) else Preempted()

    def adopt(self, now: Moment) -> None:
        """Continue the changes of an earlier controller, and hold capacity for stopped jobs."""
        for tracked in self._cluster.jobs.values():
            self.observe(tracked, self._settings_of(tracked))
        for executor in self.executors.values():
            executor.enrol(now)

    def observe(self, tracked: TrackedJob, settings: Settings) -> None:
        """Create the executors of the changes that a job may have, unless they exist."""
        if len(self.executors) < len(self._factories):
            self._create(tracked.changes_shown(settings))

    def _create(self, types: Collection[str]) -> None:
        """Create the executors of conditions, in the order of their turns."""
        if missing := {*types} - self.executors.keys():
            self.executors = {
                type_: self.executors.get(type_) or create()
                for type_, create in self._factories.items()
                if type_ in missing or type_ in self.executors
            }

    def steps(self, now: Moment) -> Steps:
        """Return the steps to write now; each job is busy until `finish`."""
        if self._cluster.draining:
            self._create({STOPPED})
        executors = self.executors.values()
        if not executors:
            return []
        steps: Steps = []
        for executor in executors:
            with self._guarding(steps):
                executor.begin_turn(now)
                steps += _decided(executor, executor.advance(now), now)
        proposals: list[Proposal] = []
        for executor in executors:
            with self._guarding(steps):
                proposals += executor.propose(now)
        chosen = arbitrate(proposals, self._running.signals(proposals))
        for executor in executors:
            with self._guarding(steps):
                begun = executor.begin(chosen.of_kind(executor.change), now)
                steps += _decided(executor, begun, now)
        self.failures = self._running.failures.take()
        return steps

    def _guarding(self, steps: Steps) -> AbstractContextManager[None]:
        """Collect an error of an executor if it would discard the steps of other executors.

        The jobs of discarded steps would be busy forever.
        """
        return self._running.failures.collect_errors_of(steps[0][0]) if steps else nullcontext()

    def next_look(self) -> float:
        """Return when the next turn is due, in monotonic seconds, or infinity."""
        return min((each.next_turn_at() for each in self.executors.values()), default=math.inf)

    def keeps_hold(self, uid: str) -> bool:
        """Return whether a job keeps its hold because it was stopped for a change."""
        return any(executor.keeps_hold(uid) for executor in self.executors.values())

    def may_return(self, uid: str) -> bool:
        """Return whether a job that was stopped may start on its former nodes."""
        return any(executor.may_return(uid) for executor in self.executors.values())

    def finish(self, uid: str, condition: str, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a job's step by the executor of a condition.

        `final`: the answer of the API server if it would refuse the step again, or empty.
        """
        if (executor := self.executors.get(condition)) and (job := executor.jobs.get(uid)):
            self._count(executor, job, "done" if complete else "refused" if final else "failed")
            executor.finish(job, complete=complete, final=final, now=now)

    def _count(self, executor: Executor, job: RunningJob, outcome: str) -> None:
        """Count the outcome of a write, if it is the last of a change or has failed."""
        for operation in job.operations:
            proposal, done = operation.proposal, outcome == "done"
            writes = operation.phase is Phase.WRITING and (operation.last or not done)
            if writes and isinstance(proposal.change, executor.change):
                result = "restored" if done and operation.restores else outcome
                self.changes[proposal.policy or "none", result] += 1

    def news(self) -> list[News]:
        """Return the shown conditions that changed since the last call."""
        return self._running.shown.news() if self.executors else []


def _decided(executor: Executor, steps: Steps, now: Moment) -> Steps:
    for tracked, step in steps:
        tracked.decide(step, at=now.monotonic)
        tracked.executor_condition = executor.condition.type
    return steps
