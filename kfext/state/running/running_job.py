"""A job that runs, or is stopped for a change, as the companion follows it.

One record holds its CPU, another its number of workers. Times are monotonic unless a docstring says
otherwise.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kfext.core.elastic import asked_workers, workers_of
from kfext.core.progress.reported import Progress, Reported
from kfext.model.backoff import exponential_backoff
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.job_state import JobState
from kfext.model.kinds.job_kind import WORKER
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.scale_state import MOST_SPEEDS, ScaleState
from kfext.model.verdict import Verdict
from kfext.names import PLACED
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.uses import Uses
from kfext.state.running.cpu.history import History, Work
from kfext.state.running.cpu.restoring import cpu_of, last_written
from kfext.state.running.operation import (
    MoveOperation,
    Phase,
    ResizeOperation,
    ScaleOperation,
    Trial,
)
from kfext.state.running.policy import ConditionStatus, Policy
from kfext.state.running.proposal import Proposal, Workers
from kfext.state.running.registry import CPU_POLICIES
from kfext.state.running.size.scale import SCALE, Sizes

SPEED_SECONDS = 30.0
"""Steps are counted for this long before their speed is believed."""
_UNKNOWN = Sizes(0, 0, 0, 0)
EARLY_SECONDS = 120.0
"""A job that prints nothing for this long counts as a job that does not show how far it is."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 300.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A time after `failures` in a row in which nothing is tried on the CPU of a job.

    `changes`: how often the quotas of the namespace had changed; another change ends the pause.
    `lasting`: whether nothing else ends the pause, because a quota or a LimitRange refused.
    `restoring`: whether restoring the user's CPU failed last. Otherwise a restore does not wait.
    """

    until: float
    failures: int
    changes: int
    lasting: bool
    restoring: bool

    def holds(self, now: float, *, changes: int, restoring: bool = False) -> bool:
        """Return whether nothing is tried yet; a lasting pause does not hold for a restore."""
        if changes != self.changes:
            return False
        if restoring:
            return self.restoring and now < self.until
        return self.lasting or now < self.until


@dataclass(slots=True)
class CpuRecord:
    """The record of the CPU of a job.

    `began`: when the controller began to follow the job. `work`: the CPU that its steps take.
    `company`: the uids and limits of the pods on its nodes, of jobs that opted in.
    `unfit`: why no policy visits the job, or empty.
    `unread`: why its progress is unknown; empty if it is known or if it is too early to say.
    `measured_at`: when the CPU use of all its pods was last known, or the job was first followed.
    `stood_down`: by policy, why it leaves the job alone for now, or empty.
    `early`: whether a policy would move CPU but does not know enough of the job yet.
    `pause`: the pause after the failures since the last success, if any.
    `refused`: why the last change failed, until a change succeeds.
    `undo`: the policy of sizes that were not all written or set, and why; they are to be restored.
    `seen`: by the uid of a pod, the last CPU of kfext that the pod was seen to have.
    """

    began: float = -math.inf
    work: Work = field(default_factory=Work)
    history: History = field(default_factory=History)
    trial: Trial | None = None
    operation: ResizeOperation | None = None
    unfit: str = ""
    unread: str = ""
    measured_at: float = -math.inf
    stood_down: dict[str, str] = field(default_factory=dict)
    company: frozenset[tuple[str, int | None]] = frozenset()
    early: bool = False
    pause: Pause | None = None
    refused: Verdict | None = None
    undo: tuple[str, Verdict] | None = None
    seen: dict[str, PodCpu] = field(default_factory=dict)

    def see(self, pods: Iterable[Pod], state: CpuState) -> None:
        """Record which pods were seen with the last CPU that was written for them."""
        before, self.seen = self.seen, {}
        for pod in pods:
            last = last_written(pod, state)
            if last is not None and last in {cpu_of(pod), before.get(pod.uid)}:
                self.seen[pod.uid] = last

    def fail(self, now: float, *, lasting: bool, restoring: bool, changes: int) -> None:
        """Record a failure; each failure in a row doubles the pause. A lasting refusal stays."""
        failures = self.pause.failures + 1 if self.pause else 1
        if self.pause is not None and self.pause.changes == changes:
            lasting |= self.pause.lasting
        pause = exponential_backoff(failures, first=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)
        self.pause = Pause(now + pause, failures, changes, lasting=lasting, restoring=restoring)

    def meet(self, company: frozenset[tuple[str, int | None]]) -> None:
        """Record the pods that share its nodes; a change makes earlier figures useless.

        Other pods end a trial, because its effect can no longer be judged.
        """
        if company == self.company:
            return
        if {uid for uid, _ in company} != {uid for uid, _ in self.company}:
            self.trial = None
            if self.operation is not None:
                self.operation.trial = None
        self.history.forget()
        self.company = company

    def left(self, reported: Reported | None, now: Moment, *, since: float) -> float | None:
        """Return the core-seconds to the end: infinite while unknown; None: not shown.

        `since`: when the job started, in epoch seconds.
        """
        if reported is None or not reported.progress.metric:
            return math.inf if now.monotonic - self.began < EARLY_SECONDS else None
        left, overdue = self.work.left(reported.progress), reported.progress.overdue
        return math.inf if left is not None and overdue(now.wall, since=since) else left


@dataclass(slots=True, kw_only=True)
class SavingRecord:
    """What is recorded of the changes before which a job saves its work.

    `asks_at`: when the job may be asked for a checkpoint again.
    `not_before`: when the next change may begin.
    `missed`: how often in a row the job saved no checkpoint in time for a change, or its new size
        was refused.
    `refused`: the answer of the API server to the last change, until a change succeeds.
    `would`: the proposal of a policy that may only observe.
    """

    asks_at: float = -math.inf
    not_before: float = -math.inf
    missed: int = 0
    refused: Verdict | None = None
    would: Proposal | None = None


@dataclass(slots=True)
class SizeRecord(SavingRecord):
    """The record of the number of workers of a job.

    `sizes`: the sizes at the last look.
    `expected`: how many workers the job has if only kfext has changed the number.
    `changed_at`: when kfext last changed the number, by the state of the job.
    `settled_at`: when the size last changed. `whole_at`: when the job was whole again after that.
        `started_at`: the same, after a change that stopped the job, or when a new controller found
        it whole.
    `unplaced`: how often in a row its growth found no place; `grows_at`: when it may grow again.
    `marked`: the time and the step where the measurement of its speed began; None: not measured.
    `metric`: the metric that its log shows; another metric may count other steps.
    `largest`: the largest size that was seen running; `speeds`: steps a second by size.
    `pause`, `failed`: as in ScaleState.
    `starts`: whether the job was not whole yet when kfext began to follow it.
    `resting`: why the job is to be left alone from now on; empty: no longer; None: as its state
        says.
    `unfit`: why the job is left alone, or empty.
    `hindered`: the quota that keeps the job from getting back its workers, or empty.
    """

    sizes: Sizes = _UNKNOWN
    expected: int = 0
    changed_at: float = 0.0
    operation: ScaleOperation | None = None
    settled_at: float = -math.inf
    whole_at: float = -math.inf
    started_at: float = -math.inf
    unplaced: int = 0
    grows_at: float = -math.inf
    marked: tuple[float, int] | None = None
    metric: str = ""
    restarts: int = 0
    largest: int = 0
    speeds: dict[int, float] = field(default_factory=dict)
    pause: float = 0.0
    starts: bool = False
    failed: int = 0
    resting: str | None = None
    unfit: str = ""
    hindered: str = ""

    @property
    def phase(self) -> Phase | None:
        """The phase of the operation, if any."""
        return None if self.operation is None else self.operation.phase

    def begin(self, proposal: Proposal, change: Workers, phase: Phase, *, at: float) -> None:
        """Begin an operation in a phase."""
        self.operation = ScaleOperation(proposal, phase, at, change=change, before=self.sizes.now)
        self.marked = None

    def enter(self, phase: Phase, *, at: float) -> None:
        """Enter the next phase of the operation."""
        if self.operation is not None:
            self.operation.enter(phase, at=at)
        self.marked = None

    def end(self, *, at: float, pause: float = 0.0) -> None:
        """End the operation, carried out or given up; `pause`: before the next operation."""
        self.operation = self.marked = None
        self.not_before = max(self.not_before, at + pause)

    def measure(self, progress: Progress, restarts: int) -> None:
        """Record the progress of the job while its size is settled."""
        if progress.step is None or progress.at is None:
            return
        if self.metric and progress.metric != self.metric:
            self.marked = None
            self.speeds.clear()
        self.metric = progress.metric
        if self.marked is None or restarts != self.restarts or progress.step < self.marked[1]:
            self.marked, self.restarts = (progress.at, progress.step), restarts
            return
        self.largest = max(self.largest, self.sizes.now)
        seconds, steps = progress.at - self.marked[0], progress.step - self.marked[1]
        if seconds >= SPEED_SECONDS and steps > 0:
            if len(self.speeds) >= MOST_SPEEDS and self.sizes.now not in self.speeds:
                del self.speeds[min(self.speeds)]
            self.speeds[self.sizes.now] = steps / seconds

    def state_with(self, state: JobState, workers: int, *, cause: str, now: float) -> JobState:
        """Return the state of the job with another number of workers; `now`: epoch seconds."""
        asked = self.sizes.asked
        same = workers == asked
        scale = replace(
            self.remembered(state.scale), before=self.sizes.now, changed_at=now, cause=cause
        )
        return replace(
            state, asked=0 if same else asked, admitted=0 if same else workers, scale=scale
        )

    def remembered(self, state: ScaleState) -> ScaleState:
        """Return the state with what was learned about the sizes."""
        return replace(
            state,
            largest=self.largest,
            failed=self.failed,
            pause=self.pause,
            speeds=dict(self.speeds),
        )


@dataclass(slots=True)
class MoveRecord(SavingRecord):
    """The record of the moves of a job.

    `unfit`: why the job is left alone, if it is. `stays`: why it was not moved at the last look.
    """

    operation: MoveOperation | None = None
    unfit: Verdict | None = None
    stays: Verdict | None = None


@dataclass(slots=True)
class RunningJob:
    """A job that opted in to a policy, or that a policy still owes CPU or workers.

    `chosen`: by name, the policies that the user and the administrator allow.
    `cpu`, `size`, `move`: the records of its CPU, its number of workers and its moves, each new
        when kfext begins to follow it.
    `shown`: by the type of a condition, what its TrainingPlan shows.
    """

    tracked: TrackedJob
    chosen: Mapping[str, PolicyChoice] = field(default_factory=dict)
    cpu: CpuRecord = field(default_factory=CpuRecord)
    size: SizeRecord = field(default_factory=SizeRecord)
    move: MoveRecord = field(default_factory=MoveRecord)
    shown: dict[str, ConditionStatus | None] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """The uid of the job."""
        return self.tracked.job.uid

    def mode(self, policy: Policy) -> Mode:
        """Return the mode in which a policy runs for the job."""
        choice = self.chosen.get(policy.name)
        return Mode.OFF if choice is None else choice.mode

    @property
    def cpu_policies(self) -> dict[str, PolicyChoice]:
        """The chosen policies for its CPU."""
        names = (policy.name for policy in CPU_POLICIES)
        return {name: self.chosen[name] for name in names if name in self.chosen}

    @property
    def rests(self) -> dict[str, str]:
        """By the name of a policy, why it leaves the job alone from now on."""
        state = self.tracked.state
        scale = {SCALE.name: state.scale.rests} if state.scale.rests else {}
        return {**state.cpu.rests, **scale}

    @property
    def in_flight(self) -> bool:
        """Whether an operation is under way: one, or two if one of them gives back CPU."""
        operations = self.size.operation, self.move.operation, self.cpu.operation
        return any(operation is not None for operation in operations)


def size_record(tracked: TrackedJob, sizes: Sizes) -> SizeRecord:
    """Begin to follow the size of a job, with what its state has learned."""
    state = tracked.state.scale
    return SizeRecord(
        sizes,
        expected=workers_of(tracked.job),
        changed_at=state.changed_at,
        largest=state.largest,
        speeds=dict(state.speeds),
        pause=state.pause,
        failed=state.failed,
    )


def has_kfext_size(tracked: TrackedJob) -> bool:
    """Return whether kfext gave the job a size other than the size that it asked for."""
    return asked_workers(tracked.job, tracked.state) != workers_of(tracked.job)


def is_edited(tracked: TrackedJob) -> bool:
    """Return whether a person changed the size that kfext gave a job, and its state is older."""
    state, job = tracked.state, tracked.job
    return tracked.phase is not None and state.asked > 0 and state.admitted != workers_of(job)


def all_running(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether all pods of a job run, and there are no others."""
    return len(pods) == tracked.job.pods and all(
        pod.node_name and pod.phase == "Running" and not pod.deleting for pod in pods
    )


def may_change(job: RunningJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether a job runs, and nothing else about it changes now."""
    tracked = job.tracked
    return (
        not (job.in_flight or tracked.busy or tracked.job.suspend)
        and tracked.phase == PLACED
        and all_running(tracked, pods)
    )


def is_whole(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether all pods of a job exist, and all live pods run."""
    present = sum(not pod.deleting for pod in pods)
    return present >= tracked.job.pods and all(
        pod.node_name and pod.phase == "Running" for pod in live_pods(pods)
    )


def live_pods(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Return the pods that have not ended and are not about to end."""
    return tuple(pod for pod in pods if not (pod.finished or pod.deleting))


def all_measured(pods: tuple[Pod, ...], uses: Uses) -> bool:
    """Return whether the CPU use of all pods is known."""
    return all(uses.of(pod.uid) for pod in live_pods(pods))


def leaving(pods: tuple[Pod, ...], workers: int) -> tuple[Pod, ...]:
    """Return the pods that the operator deletes if a job gets so many workers."""
    worker = WORKER.lower()
    return tuple(
        pod
        for pod in pods
        if pod.replica and pod.replica.type == worker and pod.replica.index >= workers
    )
