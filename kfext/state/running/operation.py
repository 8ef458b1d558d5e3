"""Operations: proposals that are being carried out, in phases, and the trial of their effect."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean, stdev

from kfext.model.cpu_size import TrainerCpu
from kfext.model.plan import Assignment
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.state.running.proposal import (
    Proposal,
    Rank,
    Size,
    Stage,
    Workers,
    restore_proposal,
    value_of,
)
from kfext.state.running.signals import JobSignal

WINDOWS = 4
"""A trial ends after this many measured windows; a window is an interval of progress reports."""
WINDOWS_BEFORE = 2
"""The number of measured windows that are needed before the change."""
_CERTAIN = 2.0
"""A gain must exceed this many standard errors."""
_MIN_GAIN = 0.02
"""A gain must exceed this fraction of the mean before the change, even without noise."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A proposal on trial: the values of its measure in the windows before and after it."""

    proposal: Proposal
    before: tuple[float, ...]
    after: tuple[float, ...] = ()

    def with_window(self, job: JobSignal) -> "Trial":
        """Return the trial with the present value added; an unmeasured window changes nothing."""
        measure = self.proposal.measure
        value = None if measure is None else value_of(job, measure)
        return self if value is None else replace(self, after=(*self.after, value))

    def gained(self) -> bool | None:
        """Return whether the job has gained; None means that this is not known yet.

        A clear gain counts at once. The lack of a gain is known only after all windows.
        """
        if _is_gain(self.before, self.after):
            return True
        if len(self.after) < WINDOWS:
            return None
        # The lowest value before and after may be from a window with a checkpoint or another pause.
        return _is_gain(_without_lowest(self.before), _without_lowest(self.after))

    def undo(self, job: JobSignal) -> Proposal | None:
        """Return the proposal that undoes the change and disables the policy for the job."""
        policy = self.proposal.policy
        reason = f"{policy} is undone: it showed no gain in {WINDOWS} intervals"
        return restore_proposal(policy, job, reason=reason, disabled={policy})


def _is_gain(before: Sequence[float], after: Sequence[float]) -> bool:
    if not before or not after:
        return False
    noise = _CERTAIN * math.hypot(_error(before), _error(after))
    return fmean(after) - fmean(before) > max(noise, _MIN_GAIN * abs(fmean(before)))


def _without_lowest(values: Sequence[float]) -> Sequence[float]:
    return sorted(values)[1:] if len(values) > WINDOWS_BEFORE else values


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for a single value."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


KUBELET_SECONDS = 60.0
"""The longest wait for the kubelets to set the sizes of a stage."""
MEASURE_SECONDS = 180.0
"""The longest wait for new measurements."""
MEASUREMENTS = 2
"""New measurements that are needed: the first window may have begun before the change."""


class Phase(StrEnum):
    """The phase of an operation."""

    SAVING = "saving"
    """The job is to save a checkpoint first."""
    WRITING = "writing"
    """A stage is being written."""
    SETTLING = "settling"
    """Pods are created or deleted, or the kubelets set the new sizes."""
    MEASURING = "measuring"
    """The operation waits for the first step at the new size, or for new CPU measurements."""
    TRIAL = "trial"
    """The new speed is compared with the speed before the change."""


@dataclass(slots=True)
class Operation:
    """A proposal that is being carried out; `since`: when its phase began, in monotonic seconds."""

    proposal: Proposal
    phase: Phase = Phase.WRITING
    since: float = 0.0

    @property
    def restores(self) -> bool:
        """Whether the operation restores the user's values."""
        return self.proposal.rank is Rank.RESTORE

    @property
    def last(self) -> bool:
        """Whether its current write is its last."""
        return True

    def enter(self, phase: Phase, *, at: float) -> None:
        """Enter a phase; `at`: the time in monotonic seconds."""
        self.phase, self.since = phase, at


@dataclass(slots=True)
class ResizeOperation(Operation):
    """New CPU for the pods of a job, stage by stage.

    `trial`: the trial that begins after the last stage.
    `by`: the policies that have set the CPU that the pods will have.
    `undo`: the policy of the incomplete change that it undoes, if any, and why it is incomplete.
    `stage`: the index of the current stage.
    `measured`: the number of CPU measurements of each pod, by uid, when all sizes were set.
    """

    trial: Trial | None = None
    by: frozenset[str] = frozenset()
    undo: tuple[str, Verdict] | None = None
    stage: int = 0
    measured: Mapping[str, int] = field(default_factory=dict)

    @property
    def sizes(self) -> Stage:
        """The sizes of the current stage."""
        stages = self.proposal.stages
        return stages[self.stage] if self.stage < len(stages) else ()

    @property
    def is_set(self) -> bool:
        """Whether the kubelets have set all sizes, and only measurements are missing."""
        return self.phase is Phase.MEASURING

    @property
    def last(self) -> bool:
        """Whether the current stage is the last."""
        return self.stage + 1 == len(self.proposal.stages)


@dataclass(slots=True, kw_only=True)
class SavingOperation(Operation):
    """An operation that waits until the job has saved its work.

    `request_number`: the number of the checkpoint request; 0 before a request.
    `outdated`: the time of a checkpoint that is too old to count, in epoch seconds.
    """

    request_number: int = 0
    outdated: float | None = None


@dataclass(slots=True, kw_only=True)
class ScaleOperation(SavingOperation):
    """A change of the number of workers of a job.

    `change`: the proposed number, or a smaller number if less capacity remains.
    `before`: the number of workers before the change.
    `restarted`: whether kfext has replaced the workers because they hung after the change.
    """

    change: Workers
    before: int = 0
    restarted: bool = False


@dataclass(slots=True, kw_only=True)
class MoveOperation(SavingOperation):
    """A move of a job; `source`: the nodes of its pods when it was stopped.

    `stopped`: whether kfext has observed the job suspended since then.
    """

    source: Assignment = field(default_factory=dict)
    stopped: bool = False


@dataclass(slots=True, kw_only=True)
class StopOperation(SavingOperation):
    """A stop of a job for a waiting job.

    `saves_at`: the expected time of the job's next checkpoint without a request, in epoch seconds;
        infinity means that none is expected in time.
    `answer_seconds`: the seconds from the request to its answer, or until now.
    `ready`: whether the job has saved its work, or need not.
    `late`: whether it stops although it did not save in time.
    """

    saves_at: float = math.inf
    answer_seconds: float = 0.0
    ready: bool = False
    late: bool = False


def why_not_set(operation: ResizeOperation, pods: Iterable[Pod], *, now: float) -> Verdict | None:
    """Return why the kubelets will not set the sizes of a stage; None means that they still may."""
    sizes = {size.pod for size in operation.sizes}
    for pod in pods:
        if pod.uid in sizes and pod.resize_problem is not None:
            return pod.resize_problem
    if now - operation.since >= KUBELET_SECONDS:
        message = f"the kubelet has not set the CPU within {KUBELET_SECONDS:g} s"
        return Verdict("NotSet", message)
    return None


def all_set(operation: ResizeOperation, pods: Iterable[Pod]) -> bool:
    """Return whether the kubelets have set the sizes of a stage on all pods that still exist."""
    wanted = {size.pod: size for size in operation.sizes}
    return all(_is_set(wanted[pod.uid], pod.trainer) for pod in pods if pod.uid in wanted)


def _is_set(size: Size, cpu: TrainerCpu | None) -> bool:
    return (
        cpu is not None
        and (size.limit is None or cpu.given == size.limit)
        and (size.request is None or cpu.allocated == size.request)
    )


FRESH_SECONDS = 10.0
"""A checkpoint up to this age is recent enough to interrupt the job."""
ANSWER_SECONDS = 120.0
"""The longest wait for a requested checkpoint, or for the job's next checkpoint."""
STOP_SECONDS = 30.0
"""A write that is to stop a job counts as lost if the job still runs after this time."""


class Readiness(StrEnum):
    """How ready a job is to be interrupted."""

    READY = "ready"
    """The job would lose little or no work."""
    ASK = "ask"
    """The job answers requests: request a checkpoint, or wait for the answer."""
    AWAIT = "await"
    """The job reports checkpoints but answers no requests: wait for its next checkpoint."""
    NEVER = "never"
    """The job has reported no checkpoint, so it would lose all its work."""


def readiness(
    *,
    saved: float | None,
    outdated: float | None,
    answered: int | None,
    request_number: int,
    now: float,
    interrupts: bool,
) -> Readiness:
    """Return how ready a job is to be interrupted. Times are in epoch seconds.

    `saved`: the time of the last reported checkpoint.
    `outdated`: the time of a checkpoint that is too old to count.
    `answered`: the number of the last checkpoint request that the job answered.
    `request_number`: the number of the open checkpoint request; 0 means that none is open.
    `interrupts`: whether the interruption stops processes that would lose work.
    """
    if not interrupts:
        return Readiness.READY
    if request_number and answered is not None and answered >= request_number:
        return Readiness.READY
    # A time far in the future is from another clock, so the age of the checkpoint is unknown.
    fresh = saved is not None and abs(now - saved) <= FRESH_SECONDS
    if fresh and saved != outdated:
        return Readiness.READY
    if answered is not None:
        return Readiness.ASK
    return Readiness.NEVER if saved is None else Readiness.AWAIT
