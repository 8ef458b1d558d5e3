"""A job that runs, or that is stopped for a change, as the companion follows it.

What is known of its CPU and what is known of its number of workers are two records. Times are
monotonic unless it is said otherwise.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kfext.core.companion.history import History, Work
from kfext.core.companion.operation import Phase, ResizeOperation, ScaleOperation, Trial
from kfext.core.companion.policy import Shown
from kfext.core.companion.proposal import Proposal, Workers
from kfext.core.companion.restoring import last_written
from kfext.core.companion.scale import SCALE, Sizes
from kfext.core.companion.signals import Budget
from kfext.core.elastic import asked_workers, workers_of
from kfext.core.lifecycle.steps import Resize
from kfext.core.progress.reported import Progress, Reported
from kfext.model.backoff import exponential_backoff
from kfext.model.cpu_state import CpuState
from kfext.model.job_state import JobState
from kfext.model.kinds.job_kind import WORKER
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.scale_state import MOST_SPEEDS, ScaleState
from kfext.model.verdict import Verdict
from kfext.state.tracked_job import TrackedJob
from kfext.state.uses import Uses

SPEED_SECONDS = 30.0
"""For how long steps are counted before their speed is believed."""
_UNKNOWN = Sizes(0, 0, 0, 0)
_EARLY_SECONDS = 120.0
"""How long a job may print nothing before it counts as a job that does not show how far it is."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 300.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A time after `failures` in a row in which nothing is tried on the CPU of a job.

    `changes`: how often the quotas of the namespace had changed then; another change ends it.
    `lasting`: whether nothing else ends it, as a quota or a LimitRange refused.
    `restoring`: whether the last failure was to restore what the user wrote. Otherwise restoring
        waits for nothing.
    """

    until: float
    failures: int
    changes: int
    lasting: bool
    restoring: bool

    def holds(self, now: float, *, changes: int, restoring: bool = False) -> bool:
        """Return whether nothing is tried yet; what the user wrote is restored again and again."""
        if changes != self.changes:
            return False
        if restoring:
            return self.restoring and now < self.until
        return self.lasting or now < self.until


@dataclass(slots=True)
class CpuRecord:
    """What is known of the CPU of a job.

    `began`: when the controller began to follow it. `work`: what its steps take.
    `peak`: the most that it was seen to use on a node, in millicores.
    `budget`: what it has used, and lost for others or lent them. `counted_at`: up to when a
        controller before this one has counted that, in epoch seconds; 0.0 once all is counted.
    `company`: the uids and the limits of the pods on its nodes, of jobs that opted in.
    `unfit`: why no policy looks at it, empty if they do.
    `unread`: why nothing is known of its progress, empty if it is, or if it is too early to say.
    `measured_at`: when the CPU use of all its pods was known last, or the job was first followed.
    `stood_down`: by policy, why it leaves the job alone for now, empty if it does not.
    `early`: whether a policy would take something from it, but has not seen enough of it yet.
    `pause`: after a failure, None if nothing has failed since the last success.
    `refused`: why, until something succeeds. `undo`: the policy whose sizes were not all written
        or set, and why: they are to be restored.
    `seen`: by the uids of its pods, the last limits of kfext's that they were seen to have.
    """

    began: float = -math.inf
    work: Work = field(default_factory=Work)
    peak: int = 0
    history: History = field(default_factory=History)
    budget: Budget = field(default_factory=Budget)
    counted_at: float = 0.0
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
    seen: dict[str, int] = field(default_factory=dict)

    def see(self, pods: Iterable[Pod], state: CpuState) -> None:
        """Record which pods have had the last limit that was written for them."""
        before, self.seen = self.seen, {}
        for pod in pods:
            last = last_written(pod, state)
            now = pod.trainer.limit if pod.trainer else None
            if last is not None and last in {now, before.get(pod.uid)}:
                self.seen[pod.uid] = last

    def fail(self, now: float, *, lasting: bool, restoring: bool, changes: int) -> None:
        """Record a failure; each in a row doubles the pause. A lasting refusal stays one."""
        failures = self.pause.failures + 1 if self.pause else 1
        if self.pause is not None and self.pause.changes == changes:
            lasting |= self.pause.lasting
        pause = exponential_backoff(failures, first=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)
        self.pause = Pause(now + pause, failures, changes, lasting=lasting, restoring=restoring)

    def dated(self, step: Resize, now: Moment) -> Resize:
        """Return a step that also says up to when its budget is counted, if it has a budget."""
        cpu = step.state.cpu
        if cpu == CpuState():
            return step
        cpu = replace(cpu, counted_at=self.counted_at or now.wall)
        return replace(step, state=replace(step.state, cpu=cpu))

    def meet(self, company: frozenset[tuple[str, int | None]]) -> None:
        """Record which pods share its nodes: figures from before a change compare with none after.

        Other pods end a trial, as it cannot be told any more what the trial has brought.
        """
        if company == self.company:
            return
        if {uid for uid, _ in company} != {uid for uid, _ in self.company}:
            self.trial = None
            if self.operation is not None:
                self.operation.trial = None
        self.history.forget()
        self.company = company

    def left(self, reported: Reported | None, now: float) -> float | None:
        """Return the core-seconds to its end: infinite while it is too early, None if unknown."""
        if reported is None or not reported.progress.metric:
            return math.inf if now - self.began < _EARLY_SECONDS else None
        return self.work.left(reported.progress)


@dataclass(slots=True)
class SizeRecord:
    """What is known of the number of workers of a job.

    `sizes`: as of the last look.
    `expected`: how many workers the job has if only kfext has changed them.
    `changed_at`: when kfext last changed them, as the job's state has it.
    `asks_at`: when the job may be asked for a checkpoint again.
    `settled_at`: when its size last changed. `whole_at`: when it was whole again after that.
        `started_at`: the same after a change that stopped it.
    `not_before`: when the next change may begin.
    `missed`: how often in a row it saved no checkpoint in time for a change.
    `unplaced`: how often in a row its growth found no place; `grows_at`: when it may grow again.
    `marked`: the time and the step from which its speed is measured, None while it changes.
        `metric`: what is followed in its log; another metric may count other steps.
    `largest`: the largest size that was seen running; `speeds`: steps a second by size.
    `pause`, `failed`: as in ScaleState; `starts`: whether it was not whole yet when it was met.
    `refused`: the answer of the API server to the last change, None once a change succeeded.
    `resting`: why it is to be left alone from now on, empty if it is not any more; None once its
        state says so.
    `unfit`: why it is left alone, empty if it is not.
    `hindered`: which quota keeps it from getting back what it asked for, empty if none does.
    `would`: what a policy that may only observe would do.
    """

    sizes: Sizes = _UNKNOWN
    expected: int = 0
    changed_at: float = 0.0
    operation: ScaleOperation | None = None
    asks_at: float = -math.inf
    settled_at: float = -math.inf
    whole_at: float = -math.inf
    started_at: float = -math.inf
    not_before: float = -math.inf
    missed: int = 0
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
    refused: Verdict | None = None
    resting: str | None = None
    unfit: str = ""
    hindered: str = ""
    would: Proposal | None = None

    @property
    def phase(self) -> Phase | None:
        """The phase of its operation, None without an operation."""
        return None if self.operation is None else self.operation.phase

    def begin(self, proposal: Proposal, change: Workers, phase: Phase, *, at: float) -> None:
        """Begin an operation in a phase."""
        self.operation = ScaleOperation(proposal, phase, at, change=change, before=self.sizes.now)
        self.marked = None

    def enter(self, phase: Phase, *, at: float) -> None:
        """Go on to the next phase of the operation."""
        if self.operation is not None:
            self.operation.enter(phase, at=at)
        self.marked = None

    def end(self, *, at: float, pause: float = 0.0) -> None:
        """End the operation, as carried out or given up; `pause`: before the next one."""
        self.operation = self.marked = None
        self.not_before = max(self.not_before, at + pause)

    def measure(self, progress: Progress, restarts: int) -> None:
        """Record how far the job is, while its size is settled."""
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

    def noted(self, state: JobState, workers: int, *, cause: str, now: float) -> JobState:
        """Return the state of the job with another number of workers; `now` is epoch seconds."""
        asked = self.sizes.asked
        same = workers == asked
        scale = replace(
            self.remembered(state.scale), before=self.sizes.now, changed_at=now, cause=cause
        )
        return replace(
            state, asked=0 if same else asked, admitted=0 if same else workers, scale=scale
        )

    def remembered(self, state: ScaleState) -> ScaleState:
        """Return what is to be remembered of the sizes."""
        return replace(
            state,
            largest=self.largest,
            failed=self.failed,
            pause=self.pause,
            speeds=dict(self.speeds),
        )


@dataclass(slots=True)
class RunningJob:
    """A job that opted in to a policy, or that has not got back what a policy took.

    `chosen`: by name, the policies that the user and the administrator allow.
    `cpu`, `size`: what is known of its CPU and of its number of workers; each is new when kfext
        begins to follow it.
    `shown`: by the type of a condition, what its TrainingPlan shows.
    """

    tracked: TrackedJob
    chosen: Mapping[str, PolicyChoice] = field(default_factory=dict)
    cpu: CpuRecord = field(default_factory=CpuRecord)
    size: SizeRecord = field(default_factory=SizeRecord)
    shown: dict[str, Shown | None] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """The uid of the job."""
        return self.tracked.job.uid

    @property
    def scale_mode(self) -> Mode:
        """What the policy that changes the number of workers may do."""
        choice = self.chosen.get(SCALE.name)
        return Mode.OFF if choice is None else choice.mode

    @property
    def cpu_policies(self) -> dict[str, PolicyChoice]:
        """The policies that change the CPU of its pods."""
        return {name: choice for name, choice in self.chosen.items() if name != SCALE.name}

    @property
    def in_flight(self) -> bool:
        """Whether an operation is under way: at most one, and beside it one that gives back CPU."""
        return self.size.operation is not None or self.cpu.operation is not None


def cpu_record(state: CpuState, now: float) -> CpuRecord:
    """Begin to follow the CPU of a job; what the job lost before counts on."""
    budget = Budget(state.used, state.lost, state.lent, state.borrowed)
    return CpuRecord(began=now, budget=budget, counted_at=state.counted_at, measured_at=now)


def size_record(tracked: TrackedJob, sizes: Sizes) -> SizeRecord:
    """Begin to follow the size of a job; what was learned of it before counts on."""
    known = tracked.state.scale
    return SizeRecord(
        sizes,
        expected=workers_of(tracked.job),
        changed_at=known.changed_at,
        largest=known.largest,
        speeds=dict(known.speeds),
        pause=known.pause,
        failed=known.failed,
    )


def is_ours(tracked: TrackedJob) -> bool:
    """Return whether the job still has a size that kfext gave it and that it was not asked for."""
    return asked_workers(tracked.job, tracked.state) != workers_of(tracked.job)


def is_edited(tracked: TrackedJob) -> bool:
    """Return whether a person changed the size that kfext gave a job, unknown to its state."""
    state, job = tracked.state, tracked.job
    return tracked.phase is not None and state.asked > 0 and state.admitted != workers_of(job)


def all_running(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether a job runs with exactly its pods, and no pod is about to go."""
    return len(pods) == tracked.job.pods and all(
        pod.node_name and pod.phase == "Running" and not pod.deleting for pod in pods
    )


def is_whole(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether all pods of a job exist, and run as far as they have not ended."""
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
