"""A job that opted in to be scaled, as it is followed. Times are monotonic."""

import math
from dataclasses import dataclass, field, replace

from kfext.core.companion.shown import Shown
from kfext.core.elastic import asked_workers, workers_of
from kfext.core.progress.reported import Progress
from kfext.core.scale.change import Change, Phase
from kfext.core.scale.sizes import Sizes
from kfext.model.job_state import JobState
from kfext.model.kinds.job_kind import WORKER
from kfext.model.pod import Pod
from kfext.model.policy import PolicyChoice
from kfext.model.scale_state import MOST_SPEEDS, ScaleState
from kfext.model.verdict import Verdict
from kfext.state.tracked_job import TrackedJob

MEASURE_SECONDS = 30.0
"""For how long steps are counted before their speed is believed."""


@dataclass(slots=True)
class ScaledJob:
    """What is known of a job, in workers.

    `choice`: what the TrainingPolicy allows. `sizes`: as of the last look.
    `expected`: how many workers the job has if nobody else has changed it.
    `changed_at`: when kfext last changed that, as the job's state has it.
    `change`: what is under way, in its `phase` since `since`.
    `before`: the size before that change.
    `requested`: the number of the checkpoint that was asked for, 0 if none was.
    `asks_at`: when it may be asked for one again.
    `settled_at`: when its size last changed. `whole_at`: when it was whole again after that.
        `started_at`: the same after a change that stopped it.
    `not_before`: when the next change may begin.
    `missed`: how often in a row it saved no checkpoint in time for a change.
    `unplaced`: how often in a row its growth found no place; `grows_at`: when it may grow again.
    `marked`: the time and the step from which its speed is measured, None while it changes.
        `metric`: what is followed in its log; another one may count other steps.
    `largest`: the largest size that was seen running; `speeds`: steps a second by size.
    `pause`: as in ScaleState; `starts`: whether it was not whole yet when it was met.
    `restarted`: whether its workers were replaced in this change.
    `refused`: the answer of the API server to the last change, None once one succeeded.
    `resting`: why it is to be left alone from now on, empty if it is not any more; None once its
        state says so.
    `unfit`: why it is left alone, empty if it is not.
    `hindered`: which quota keeps it from getting back what it asked for, empty if none does.
    """

    tracked: TrackedJob
    choice: PolicyChoice
    sizes: Sizes
    expected: int
    changed_at: float = 0.0
    change: Change | None = None
    phase: Phase | None = None
    since: float = 0.0
    before: int = 0
    requested: int = 0
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
    restarted: bool = False
    refused: Verdict | None = None
    resting: str | None = None
    unfit: str = ""
    hindered: str = ""
    shown: Shown | None = None

    @property
    def uid(self) -> str:
        """The uid of the job."""
        return self.tracked.job.uid

    def begin(self, change: Change, phase: Phase, *, at: float) -> None:
        """Begin a change."""
        self.change, self.before, self.restarted = change, self.sizes.now, False
        self.requested = 0
        self.enter(phase, at=at)

    def enter(self, phase: Phase, *, at: float) -> None:
        """Go on to the next phase of the change."""
        self.phase, self.since = phase, at
        self.marked = None

    def end(self, *, at: float, pause: float = 0.0) -> None:
        """End the change, as carried out or given up; `pause`: before the next one."""
        self.change = self.phase = None
        self.marked = None
        self.not_before = max(self.not_before, at + pause)

    def measure(self, progress: Progress, restarts: int) -> None:
        """Take in how far the job is, while its size is settled."""
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
        if seconds >= MEASURE_SECONDS and steps > 0:
            if len(self.speeds) >= MOST_SPEEDS and self.sizes.now not in self.speeds:
                del self.speeds[min(self.speeds)]
            self.speeds[self.sizes.now] = steps / seconds

    def noted(self, workers: int, *, cause: str, now: float) -> JobState:
        """Return the state of the job with another number of workers; `now` is epoch seconds."""
        asked, state = self.sizes.asked, self.tracked.state
        same = workers == asked
        scale = replace(self.remembered(), before=self.sizes.now, changed_at=now, cause=cause)
        return replace(
            state, asked=0 if same else asked, admitted=0 if same else workers, scale=scale
        )

    def remembered(self) -> ScaleState:
        """Return what is to be remembered of its sizes."""
        return replace(
            self.tracked.state.scale,
            largest=self.largest,
            failed=self.failed,
            pause=self.pause,
            speeds=dict(self.speeds),
        )


def scaled(tracked: TrackedJob, choice: PolicyChoice, sizes: Sizes) -> ScaledJob:
    """Begin to follow a job; what was learned of it before counts on."""
    known = tracked.state.scale
    return ScaledJob(
        tracked,
        choice,
        sizes,
        expected=workers_of(tracked.job),
        changed_at=known.changed_at,
        largest=known.largest,
        speeds=dict(known.speeds),
        pause=known.pause,
        failed=known.failed,
    )


def is_ours(tracked: TrackedJob) -> bool:
    """Return whether kfext gave the job another size than it was asked for, and it still has it."""
    return asked_workers(tracked.job, tracked.state) != workers_of(tracked.job)


def is_edited(tracked: TrackedJob) -> bool:
    """Return whether somebody changed the size that kfext gave a job, and it is not noted yet."""
    state, job = tracked.state, tracked.job
    return tracked.phase is not None and state.asked > 0 and state.admitted != workers_of(job)


def all_running(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether a job runs with all of its pods, and none that is about to go."""
    job = tracked.job
    return len(pods) == job.pods and all(
        pod.node_name and pod.phase == "Running" and not pod.deleting for pod in pods
    )


def leaving(pods: tuple[Pod, ...], workers: int) -> tuple[Pod, ...]:
    """Return the pods that the operator deletes if a job gets so many workers."""
    worker = WORKER.lower()
    return tuple(
        pod
        for pod in pods
        if pod.replica and pod.replica.type == worker and pod.replica.index >= workers
    )
