"""The companion's view of a job that runs or is stopped for a change, with a record per executor.

Times are monotonic, in seconds, unless a docstring says otherwise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

from kfext.core.elastic import SCALE_NAME, requested_workers, workers_of
from kfext.model.kinds.job_kind import WORKER
from kfext.model.pod import Pod
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.verdict import Verdict
from kfext.names import PLACED
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.operation import Operation
from kfext.state.running.policy import ConditionStatus, Policy
from kfext.state.running.proposal import Proposal


class Record:
    """An executor's record of a job. `operation`: the change in progress, if any."""

    __slots__ = ()
    operation: Operation | None


R = TypeVar("R", bound=Record)


@dataclass(slots=True)
class Restart:
    """The last start of a job.

    `was_starting`: whether pods were missing when kfext began to follow the job.
    `downtime`: the seconds that the last change of its size stopped the job; 0.0 means unknown.
    `running_since`: when all its pods ran after the last stop, or were first observed running.
    """

    was_starting: bool = False
    downtime: float = 0.0
    running_since: float = -math.inf


@dataclass(slots=True, kw_only=True)
class SavingRecord(Record):
    """The record of changes that need a checkpoint.

    `asks_at`: when the next checkpoint request may be sent.
    `not_before`: when the next change may begin.
    `missed`: the number of consecutive failures: no checkpoint in time, or a refused write.
    `refused`: why the last change failed, until a change succeeds.
    `dry_run`: the last proposal of a policy that may only observe.
    """

    asks_at: float = -math.inf
    not_before: float = -math.inf
    missed: int = 0
    refused: Verdict | None = None
    dry_run: Proposal | None = None


@dataclass(slots=True)
class RunningJob:
    """A job that opted in to a policy, or that still has CPU or workers which kfext must restore.

    `chosen`: the policies that the user and the administrator allow, by name.
    `restart`: its last start. `records`: the records of the executors, by their type.
    `shown`: the status of each condition in its TrainingPlan, by condition type.
    """

    tracked: TrackedJob
    chosen: Mapping[str, PolicyChoice] = field(default_factory=dict)
    restart: Restart = field(default_factory=Restart)
    records: dict[type[Record], Record] = field(default_factory=dict)
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
    def disabled(self) -> dict[str, str]:
        """The disabled policies by name, each with the reason."""
        state = self.tracked.state
        scale = {SCALE_NAME: state.scale.disabled} if state.scale.disabled else {}
        return {**state.cpu.disabled, **scale}

    @property
    def operations(self) -> list[Operation]:
        """The operations in progress: at most one, or two if one of them restores CPU."""
        operations = (record.operation for record in self.records.values())
        return [operation for operation in operations if operation is not None]

    def record(self, type_: type[R]) -> R:
        """Return the record of a type; a missing record is added."""
        if type_ not in self.records:
            self.records[type_] = type_()
        return cast(R, self.records[type_])

    def replace_record(self, record: Record) -> None:
        """Replace the record of the same type."""
        self.records[type(record)] = record


def has_kfext_size(tracked: TrackedJob) -> bool:
    """Return whether kfext has scaled a job away from its requested size."""
    return requested_workers(tracked.job, tracked.state) != workers_of(tracked.job)


def is_edited(tracked: TrackedJob) -> bool:
    """Return whether a person changed the number of workers after kfext had scaled the job."""
    state, job = tracked.state, tracked.job
    return tracked.phase is not None and state.requested > 0 and state.assigned != workers_of(job)


def all_running(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether a job has exactly its pods, and all of them run on a node."""
    return len(pods) == tracked.job.pods and all(
        pod.node_name and pod.phase == "Running" and not pod.deleting for pod in pods
    )


def is_settled(job: RunningJob) -> bool:
    """Return whether a job is placed, with no change in progress."""
    tracked = job.tracked
    changes = job.operations or tracked.busy or tracked.job.suspend
    return not changes and tracked.phase == PLACED


def may_change(job: RunningJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether all pods of a job run, with no change in progress."""
    return is_settled(job) and all_running(job.tracked, pods)


def is_whole(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether all pods of a job exist, and each runs or has ended."""
    present = sum(not pod.deleting for pod in pods)
    return present >= tracked.job.pods and all(
        pod.node_name and pod.phase == "Running" for pod in live_pods(pods)
    )


def live_pods(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Return the pods that have not ended and are not being deleted."""
    return tuple(pod for pod in pods if not (pod.finished or pod.deleting))


def leaving(pods: tuple[Pod, ...], workers: int) -> tuple[Pod, ...]:
    """Return the pods that the operator deletes when a job is scaled down to `workers`."""
    worker = WORKER.lower()
    return tuple(
        pod
        for pod in pods
        if pod.replica and pod.replica.type == worker and pod.replica.index >= workers
    )
