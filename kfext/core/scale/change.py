"""A change of a job's number of workers: why, in which phase, and what it does to the job."""

from dataclasses import dataclass
from enum import StrEnum

from kfext.model.job import TrainingJob
from kfext.model.kinds.job_kind import WORKER


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


def starts_anew(job: TrainingJob) -> bool:
    """Return whether a job must be stopped at a checkpoint and resumed to change its size.

    It must unless its workers come and go, or if a worker that ends with an error fails the job
    (restartPolicy Never and ExitCode): torchrun ends with an error when its pod is deleted.
    """
    fails = any(group.fails for group in job.groups if group.type == WORKER)
    return fails or not job.scaling.elastic


def interrupts(job: TrainingJob) -> bool:
    """Return whether a change of size loses what a job has done since its last checkpoint."""
    return job.scaling.restarts_all or starts_anew(job)
