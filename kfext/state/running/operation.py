"""An operation: a proposal that is being carried out, its phases, and the trial of its effect."""

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
"""Windows with a value after the change; a gain must show in them."""
WINDOWS_BEFORE = 2
"""Windows with a value that are needed before the change."""
_CERTAIN = 2.0
"""Standard errors that a gain must exceed."""
_LEAST_GAIN = 0.02
"""The least relative gain, even if the values show no noise."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A proposal on trial: the values of its measure in the windows before and after it."""

    proposal: Proposal
    before: tuple[float, ...]
    after: tuple[float, ...] = ()

    def with_window(self, job: JobSignal) -> "Trial":
        """Return the trial after another window; a window without a value changes nothing."""
        measure = self.proposal.measure
        value = None if measure is None else value_of(job, measure)
        return self if value is None else replace(self, after=(*self.after, value))

    def gained(self) -> bool | None:
        """Return whether the job has gained, or None before that is known.

        A clear gain counts at once. The lack of a gain is known only after all windows.
        """
        if _gained(self.before, self.after):
            return True
        if len(self.after) < WINDOWS:
            return None
        # The lowest window of each side may contain a checkpoint or another pause.
        return _gained(_without_lowest(self.before), _without_lowest(self.after))

    def undo(self, job: JobSignal) -> Proposal | None:
        """Return the proposal that undoes the change and disables the policy for the job."""
        policy = self.proposal.policy
        reason = f"{policy} is undone: it showed no gain in {WINDOWS} intervals"
        return restore_proposal(policy, job, reason=reason, disabled={policy})


def _gained(before: Sequence[float], after: Sequence[float]) -> bool:
    if not before or not after:
        return False
    noise = _CERTAIN * math.hypot(_error(before), _error(after))
    return fmean(after) - fmean(before) > max(noise, _LEAST_GAIN * abs(fmean(before)))


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
    """The operation waits for a checkpoint."""
    WRITING = "writing"
    """A stage is being written."""
    SETTLING = "settling"
    """Pods are created or deleted, or the kubelets set the new sizes."""
    MEASURING = "measuring"
    """The operation waits for the first step at the new size, or for new CPU measurements."""
    TRIAL = "trial"
    """The new speed is compared with the speed before."""


@dataclass(slots=True)
class Operation:
    """A proposal that is being carried out; `since`: when its phase began, monotonic."""

    proposal: Proposal
    phase: Phase = Phase.WRITING
    since: float = 0.0

    @property
    def restores(self) -> bool:
        """Whether the operation restores the user's values."""
        return self.proposal.rank is Rank.RESTORE

    @property
    def last(self) -> bool:
        """Whether its present write is the last."""
        return True

    def enter(self, phase: Phase, *, at: float) -> None:
        """Enter another phase."""
        self.phase, self.since = phase, at


@dataclass(slots=True)
class ResizeOperation(Operation):
    """New CPU for the pods of a job, one stage after the other.

    `trial`: the trial that begins after the last stage.
    `by`: the policies that account for the sizes.
    `undo`: the policy and the reason of an operation that undoes incomplete sizes.
    `measured`: the number of measurements of each pod, by uid, when all sizes were set.
    """

    trial: Trial | None = None
    by: frozenset[str] = frozenset()
    undo: tuple[str, Verdict] | None = None
    stage: int = 0
    measured: Mapping[str, int] = field(default_factory=dict)

    @property
    def sizes(self) -> Stage:
        """The sizes of the present stage."""
        stages = self.proposal.stages
        return stages[self.stage] if self.stage < len(stages) else ()

    @property
    def is_set(self) -> bool:
        """Whether the kubelets have set all sizes, and only measurements are missing."""
        return self.phase is Phase.MEASURING

    @property
    def last(self) -> bool:
        """Whether the present stage is the last."""
        return self.stage + 1 == len(self.proposal.stages)


@dataclass(slots=True, kw_only=True)
class SavingOperation(Operation):
    """An operation that waits until the job has saved its work.

    `requested`: the number of the requested checkpoint, 0 without a request.
    `outdated`: the time of a checkpoint that does not count, in epoch seconds.
    """

    requested: int = 0
    outdated: float | None = None


@dataclass(slots=True, kw_only=True)
class ScaleOperation(SavingOperation):
    """Another number of workers of a job.

    `change`: the proposed number, or a smaller number if less capacity remains.
    `before`: the number of workers before. `restarted`: whether the workers were replaced.
    """

    change: Workers
    before: int = 0
    restarted: bool = False


@dataclass(slots=True, kw_only=True)
class MoveOperation(SavingOperation):
    """A move of a job.

    `source`: the nodes of its pods when it was stopped.
    `stopped`: whether the job was observed suspended since.
    """

    source: Assignment = field(default_factory=dict)
    stopped: bool = False


@dataclass(slots=True, kw_only=True)
class StopOperation(SavingOperation):
    """A stop of a job for a waiting job.

    `saves_at`: the expected time of the job's next checkpoint without a request, in epoch seconds;
        infinite if none is expected in time.
    `ready`: whether the job has saved its work, or need not. `late`: whether it missed the time.
    `took`: the seconds from the request to its answer, or until now.
    """

    saves_at: float = math.inf
    took: float = 0.0
    ready: bool = False
    late: bool = False


def why_not_set(operation: ResizeOperation, pods: Iterable[Pod], *, now: float) -> Verdict | None:
    """Return the reason that the kubelets will not set the sizes of a stage, or None."""
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
"""A write that stops a job is lost if it has no effect after this time."""


class Readiness(StrEnum):
    """The readiness of a job for an interruption."""

    READY = "ready"
    """The job loses little or no work."""
    ASK = "ask"
    """The job answers requests: request a checkpoint, or wait for the answer."""
    AWAIT = "await"
    """The job reports checkpoints but answers no requests: wait for the next checkpoint."""
    NEVER = "never"
    """The job has reported no checkpoint, so it would lose all its work."""


def readiness(
    *,
    saved: float | None,
    outdated: float | None,
    answered: int | None,
    requested: int,
    now: float,
    interrupts: bool,
) -> Readiness:
    """Return the readiness of a job for an interruption. Times are seconds since the epoch.

    `saved`: the time of the last reported checkpoint.
    `outdated`: the time of a checkpoint that does not count.
    `answered`: the number of the last request that the job answered.
    `requested`: the number of the open request, 0 without a request.
    `interrupts`: whether the processes of the job lose any work.
    """
    if not interrupts:
        return Readiness.READY
    if requested and answered is not None and answered >= requested:
        return Readiness.READY
    # A time far in the future is from another clock, so the age of the checkpoint is unknown.
    fresh = saved is not None and abs(now - saved) <= FRESH_SECONDS
    if fresh and saved != outdated:
        return Readiness.READY
    if answered is not None:
        return Readiness.ASK
    return Readiness.NEVER if saved is None else Readiness.AWAIT
