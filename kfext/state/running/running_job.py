"""A job that runs, or is stopped for a change, as the companion follows it.

Each executor keeps a record of it. Times are monotonic unless a docstring says otherwise.
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
    """What an executor keeps of a job. `operation`: the change that is under way, if any."""

    __slots__ = ()
    operation: Operation | None


R = TypeVar("R", bound=Record)


@dataclass(slots=True)
class Restart:
    """The last start of a job.

    `begins`: whether the job was not whole yet when kfext began to follow it. `pause`: the seconds
    that the last change of its size stopped it, 0.0 if unknown. `at`: when all its pods ran again
    after a change that stopped it, or a new controller found it whole; monotonic.
    """

    begins: bool = False
    pause: float = 0.0
    at: float = -math.inf


@dataclass(slots=True, kw_only=True)
class SavingRecord(Record):
    """What is recorded of the changes before which a job saves its work.

    `asks_at`: when the job may be asked for a checkpoint again.
    `not_before`: when the next change may begin.
    `missed`: how often in a row the job saved no checkpoint in time for a change, or its new size
        was refused.
    `refused`: the answer of the API server to the last change, until a change succeeds.
    `dry_run`: the proposal of a policy that may only observe.
    """

    asks_at: float = -math.inf
    not_before: float = -math.inf
    missed: int = 0
    refused: Verdict | None = None
    dry_run: Proposal | None = None


@dataclass(slots=True)
class RunningJob:
    """A job that opted in to a policy, or that a policy still owes CPU or workers.

    `chosen`: by name, the policies that the user and the administrator allow.
    `restart`: its last start.
    `records`: by their type, the records of the executors, each new when its executor begins to
        follow the job.
    `shown`: by the type of a condition, what its TrainingPlan shows.
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
        """By the name of a policy, why it leaves the job alone from now on."""
        state = self.tracked.state
        scale = {SCALE_NAME: state.scale.disabled} if state.scale.disabled else {}
        return {**state.cpu.disabled, **scale}

    @property
    def operations(self) -> list[Operation]:
        """The operations that are under way: at most one, or two if one of them gives back CPU."""
        found = (record.operation for record in self.records.values())
        return [operation for operation in found if operation is not None]

    def record(self, type_: type[R]) -> R:
        """Return the record of an executor, by its type."""
        if type_ not in self.records:
            self.records[type_] = type_()
        return cast(R, self.records[type_])

    def keep(self, record: Record) -> None:
        """Begin a record anew."""
        self.records[type(record)] = record


def has_kfext_size(tracked: TrackedJob) -> bool:
    """Return whether kfext gave the job a size other than its requested size."""
    return requested_workers(tracked.job, tracked.state) != workers_of(tracked.job)


def is_edited(tracked: TrackedJob) -> bool:
    """Return whether a person changed the size that kfext gave a job, and its state is older."""
    state, job = tracked.state, tracked.job
    return tracked.phase is not None and state.requested > 0 and state.assigned != workers_of(job)


def all_running(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether all pods of a job run, and there are no others."""
    return len(pods) == tracked.job.pods and all(
        pod.node_name and pod.phase == "Running" and not pod.deleting for pod in pods
    )


def is_settled(job: RunningJob) -> bool:
    """Return whether a job is placed, and nothing about it changes now."""
    tracked = job.tracked
    changes = job.operations or tracked.busy or tracked.job.suspend
    return not changes and tracked.phase == PLACED


def may_change(job: RunningJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether a job runs, and nothing else about it changes now."""
    return is_settled(job) and all_running(job.tracked, pods)


def is_whole(tracked: TrackedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether all pods of a job exist, and all live pods run."""
    present = sum(not pod.deleting for pod in pods)
    return present >= tracked.job.pods and all(
        pod.node_name and pod.phase == "Running" for pod in live_pods(pods)
    )


def live_pods(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Return the pods that have not ended and are not about to end."""
    return tuple(pod for pod in pods if not (pod.finished or pod.deleting))


def leaving(pods: tuple[Pod, ...], workers: int) -> tuple[Pod, ...]:
    """Return the pods that the operator deletes if a job gets so many workers."""
    worker = WORKER.lower()
    return tuple(
        pod
        for pod in pods
        if pod.replica and pod.replica.type == worker and pod.replica.index >= workers
    )
