"""A change of a job's number of workers: why, in which phase, and what it does to the job."""

from dataclasses import dataclass
from enum import StrEnum

from kfext.model.job import TrainingJob
from kfext.model.kinds.job_kind import TENSORFLOW, WORKER


class Cause(StrEnum):
    """Why the size of a job changes."""

    GUARD = "guard"
    """It makes room for a job that waits."""
    REGROW = "regrow"
    """It gets back what it asked for."""
    GROWTH = "growth"
    """It gets more than it asked for."""
    TAKE_BACK = "takeBack"
    """It loses workers that did not pay, or that found no node."""
    GIVE_BACK = "giveBack"
    """It gets its user's size again, as it is not to be scaled any more."""


class Phase(StrEnum):
    """How far a change is."""

    SAVING = "saving"
    """A checkpoint is awaited."""
    WRITING = "writing"
    """The new size is being written."""
    SETTLING = "settling"
    """Pods come or go."""
    STEPPING = "stepping"
    """The first step with the new size is awaited."""
    TRIAL = "trial"
    """The new speed is compared with the one before."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a job's size to a number of workers; `why`: in words."""

    cause: Cause
    workers: int
    why: str

    def is_shrink(self, now: int) -> bool:
        """Return whether it leaves a job that has `now` workers with fewer."""
        return self.workers < now


def can_scale(job: TrainingJob) -> str:
    """Return why the number of workers of a running job cannot be changed, empty if it can."""
    if job.kind is TENSORFLOW:
        return ""
    if any(group.type == "Master" for group in job.groups):
        return (
            "its Master fixes the ranks of its workers; a PyTorchJob can be scaled if it has an "
            "elasticPolicy and workers alone"
        )
    if job.one_size:
        return job.one_size
    if not job.elastic:
        return "its workers were given their number when they started: set an elasticPolicy"
    if not job.most:
        return (
            "its elasticPolicy has no maxReplicas, so torchrun accepts no other number of workers: "
            "set minReplicas and maxReplicas"
        )
    return ""


def starts_anew(job: TrainingJob) -> bool:
    """Return whether a job must be stopped at a checkpoint and resumed to change its size.

    So must a TFJob without dynamic workers, as each pod knows all others from its TF_CONFIG, and a
    job that a worker with an error fails (restartPolicy Never and ExitCode), as torchrun ends with
    one when its pod is deleted. All other jobs that can be scaled change in place.
    """
    fails = any(group.fails for group in job.groups if group.type == WORKER)
    return fails or not job.elastic


def interrupts(job: TrainingJob) -> bool:
    """Return whether a change of size loses what a job has done since its last checkpoint.

    The workers of a TFJob with dynamic ones come and go without the others. Everywhere else all
    processes start again, with torchrun also if workers are only added.
    """
    return job.kind is not TENSORFLOW or starts_anew(job)
