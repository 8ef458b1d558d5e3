"""The companion's memory of a job's size: a change in progress, measured speeds, and back-offs.

Times are in monotonic seconds unless a docstring says otherwise.
"""

import math
from dataclasses import dataclass, field, replace

from kfext.core.elastic import workers_of
from kfext.core.progress.reported import Progress
from kfext.model.job_state import JobState
from kfext.model.scale_state import MAX_SPEEDS, ScaleState
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.operation import Phase, ScaleOperation
from kfext.state.running.proposal import Proposal, Workers
from kfext.state.running.running_job import RunningJob, SavingRecord
from kfext.state.running.size.scale import Sizes

SPEED_SECONDS = 30.0
"""The shortest time over which the speed of a job is measured."""
_UNKNOWN = Sizes(now=0, least=0, most=0, requested=0)


@dataclass(slots=True)
class SizeRecord(SavingRecord):
    """What the companion remembers about the number of workers of a job.

    `sizes`: the sizes at the last scan.
    `expected`: the number of workers that kfext last observed or wrote.
    `changed_at`: when kfext last changed the number, in epoch seconds, as in the job's state.
    `settled_at`: when the size last changed. `all_running_at`: when all pods first ran after it.
    `unplaced`: the number of consecutive scale-ups after which the new pods found no nodes.
    `may_scale_up_at`: when the job may be scaled up again.
    `speed_start`: the time in the log and the step when the measurement of its speed began.
    `metric`, `restarts`: the metric and the number of restarts in the log at that time.
    `largest`: the largest size that was observed running. `speeds`: steps a second by size.
    `failed`: the smallest size that was not worth scaling up to; 0 if unknown.
    `disabled_reason`: the reason to write into the job's state so that the policy is disabled;
        empty enables the policy again, None leaves the state as it is.
    `ineligible`: why the job is ineligible, or empty.
    `quota_refusal`: why a quota keeps the job below its requested size, or empty.
    `failed_search`: the inputs of the last search that found no capacity for one more worker.
    """

    sizes: Sizes = _UNKNOWN
    expected: int = 0
    changed_at: float = 0.0
    operation: ScaleOperation | None = None
    settled_at: float = -math.inf
    all_running_at: float = -math.inf
    unplaced: int = 0
    may_scale_up_at: float = -math.inf
    speed_start: tuple[float, int] | None = None
    metric: str = ""
    restarts: int = 0
    largest: int = 0
    speeds: dict[int, float] = field(default_factory=dict)
    failed: int = 0
    disabled_reason: str | None = None
    ineligible: str = ""
    quota_refusal: str = ""
    failed_search: tuple[object, ...] | None = None

    @property
    def phase(self) -> Phase | None:
        """The phase of the operation; None means that no operation is in progress."""
        return None if self.operation is None else self.operation.phase

    def begin(self, proposal: Proposal, change: Workers, phase: Phase, *, at: float) -> None:
        """Begin an operation in a phase."""
        self.operation = ScaleOperation(proposal, phase, at, change=change, before=self.sizes.now)
        self.speed_start = None

    def enter(self, phase: Phase, *, at: float) -> None:
        """Enter the next phase of the operation."""
        if self.operation is not None:
            self.operation.enter(phase, at=at)
        self.speed_start = None

    def end(self, *, at: float, back_off: float = 0.0) -> None:
        """End the operation, complete or not; no other begins for `back_off` seconds."""
        self.operation = self.speed_start = None
        self.not_before = max(self.not_before, at + back_off)

    def measure(self, progress: Progress, restarts: int) -> None:
        """Measure the speed while the size is unchanged; `restarts`: the restarts in the log."""
        if progress.step is None or progress.at is None:
            return
        if self.metric and progress.metric != self.metric:
            self.speed_start = None
            self.speeds.clear()
        self.metric = progress.metric
        start = self.speed_start
        if start is None or restarts != self.restarts or progress.step < start[1]:
            self.speed_start, self.restarts = (progress.at, progress.step), restarts
            return
        self.largest = max(self.largest, self.sizes.now)
        seconds, steps = progress.at - start[0], progress.step - start[1]
        if seconds >= SPEED_SECONDS and steps > 0:
            if len(self.speeds) >= MAX_SPEEDS and self.sizes.now not in self.speeds:
                del self.speeds[min(self.speeds)]
            self.speeds[self.sizes.now] = steps / seconds

    def state_with(
        self, state: JobState, workers: int, *, cause: str, downtime: float, now: float
    ) -> JobState:
        """Return the state to write with a new number of workers; `now`: epoch seconds.

        `downtime`: the seconds that a change of size stops the training.
        """
        requested = self.sizes.requested
        same = workers == requested
        scale = replace(
            self.with_measurements(state.scale, downtime=downtime),
            before=self.sizes.now,
            changed_at=now,
            cause=cause,
        )
        return replace(
            state, requested=0 if same else requested, assigned=0 if same else workers, scale=scale
        )

    def with_measurements(self, state: ScaleState, *, downtime: float) -> ScaleState:
        """Return a state with the measurements of this record."""
        return replace(
            state,
            largest=self.largest,
            failed=self.failed,
            pause=downtime,
            speeds=dict(self.speeds),
        )


def record_of(job: RunningJob) -> SizeRecord:
    """Return the record of the number of workers of a job."""
    return job.record(SizeRecord)


def restored_record(tracked: TrackedJob, sizes: Sizes) -> SizeRecord:
    """Return a new record with the measurements from the job's state."""
    state = tracked.state.scale
    return SizeRecord(
        sizes,
        expected=workers_of(tracked.job),
        changed_at=state.changed_at,
        largest=state.largest,
        speeds=dict(state.speeds),
        failed=state.failed,
    )
