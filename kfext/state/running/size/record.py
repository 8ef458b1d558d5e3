"""The record of the number of workers of a job that the companion follows.

Times are monotonic unless a docstring says otherwise.
"""

import math
from dataclasses import dataclass, field, replace

from kfext.core.elastic import workers_of
from kfext.core.progress.reported import Progress
from kfext.model.job_state import JobState
from kfext.model.scale_state import MOST_SPEEDS, ScaleState
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.operation import Phase, ScaleOperation
from kfext.state.running.proposal import Proposal, Workers
from kfext.state.running.running_job import RunningJob, SavingRecord
from kfext.state.running.size.scale import Sizes

SPEED_SECONDS = 30.0
"""The shortest time over which the speed of a job is measured."""
_UNKNOWN = Sizes(0, 0, 0, 0)


@dataclass(slots=True)
class SizeRecord(SavingRecord):
    """The record of the number of workers of a job.

    `sizes`: the sizes at the last look.
    `expected`: the number of workers that kfext last observed or wrote.
    `changed_at`: when kfext last changed the number, by the state of the job.
    `settled_at`: when the size last changed. `whole_at`: when the job was whole again after that.
    `unplaced`: the number of consecutive growths that found no nodes.
    `grows_at`: when the job may grow again.
    `marked`: the time and the step at the start of the measurement of its speed, if any.
    `metric`: the metric in its log; another metric may count other steps.
    `largest`: the largest size that was observed running. `speeds`: steps a second by size.
    `failed`: as in ScaleState.
    `resting`: the reason to write into the state that disables the policy. Empty enables it again,
        and None leaves the state as it is.
    `unfit`: why the job is ineligible, or empty.
    `hindered`: the refusal of a quota while the job is below its requested size, or empty.
    `full`: the inputs of the last search that found no capacity for another worker, if any.
    """

    sizes: Sizes = _UNKNOWN
    expected: int = 0
    changed_at: float = 0.0
    operation: ScaleOperation | None = None
    settled_at: float = -math.inf
    whole_at: float = -math.inf
    unplaced: int = 0
    grows_at: float = -math.inf
    marked: tuple[float, int] | None = None
    metric: str = ""
    restarts: int = 0
    largest: int = 0
    speeds: dict[int, float] = field(default_factory=dict)
    failed: int = 0
    resting: str | None = None
    unfit: str = ""
    hindered: str = ""
    full: tuple[object, ...] | None = None

    @property
    def phase(self) -> Phase | None:
        """The phase of the operation, or None without an operation."""
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

    def state_with(
        self, state: JobState, workers: int, *, cause: str, pause: float, now: float
    ) -> JobState:
        """Return the state of the job with another number of workers; `now`: epoch seconds.

        `pause`: as in Restart.
        """
        requested = self.sizes.requested
        same = workers == requested
        scale = replace(
            self.remembered(state.scale, pause=pause),
            before=self.sizes.now,
            changed_at=now,
            cause=cause,
        )
        return replace(
            state, requested=0 if same else requested, assigned=0 if same else workers, scale=scale
        )

    def remembered(self, state: ScaleState, *, pause: float) -> ScaleState:
        """Return the state with the measurements of the sizes."""
        return replace(
            state,
            largest=self.largest,
            failed=self.failed,
            pause=pause,
            speeds=dict(self.speeds),
        )


def record_of(job: RunningJob) -> SizeRecord:
    """Return the record of the number of workers of a job."""
    return job.record(SizeRecord)


def size_record(tracked: TrackedJob, sizes: Sizes) -> SizeRecord:
    """Return a new record, with the measurements in the state of the job."""
    state = tracked.state.scale
    return SizeRecord(
        sizes,
        expected=workers_of(tracked.job),
        changed_at=state.changed_at,
        largest=state.largest,
        speeds=dict(state.speeds),
        failed=state.failed,
    )
