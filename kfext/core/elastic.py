"""Elastic jobs: the number of workers that a job may start with, if there is no room for all.

A job starts with as many workers as fit, at most the number it requests; it waits only if fewer
than its minimum fit. This holds only for jobs with a framework that can run with fewer workers.

kfext takes no worker from a job that could not get it back: such a job starts whole and stays as it
is.
"""

from dataclasses import replace

from kfext.core.eligibility import why_others, why_same_slots
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.kinds.job_kind import WORKER
from kfext.model.policy import Mode
from kfext.names import METRICS

SCALE_NAME = "scale"
"""The policy that changes numbers of workers."""


def opted(settings: Settings) -> Mode:
    """Return the highest mode of the policy that the settings of a job allow."""
    return Mode.OFF if settings.elastic is None else Mode.ACT


def scales(settings: Settings) -> Mode:
    """Return the mode in which the number of workers of a job may change."""
    return settings.choice(SCALE_NAME, opted(settings)).mode


def open_range(job: TrainingJob, settings: Settings) -> Range | None:
    """Return the range of training pods that kfext may choose from for a job, or None.

    Master and Chief count as training pods.
    """
    acts = scales(settings) is Mode.ACT
    return settings.elastic if acts and not why_left_alone(job, settings) else None


def fewest_workers(job: TrainingJob, allowed: Range | None) -> int:
    """Return the fewest workers that a job may start with; all workers if it is not elastic.

    `allowed`: the range that kfext may choose from (`open_range`). It counts the pods that train:
    Master, Chief and the workers.
    """
    requested = workers_of(job)
    if allowed is None or not job.scaling.any_start:
        return requested
    others = job.training_pods - requested
    return min(max(allowed.minimum - others, job.scaling.fewest, 1), requested)


def workers_of(job: TrainingJob) -> int:
    """Return how many workers a job has."""
    return sum(group.replicas for group in job.groups if group.type == WORKER)


def requested_workers(job: TrainingJob, state: JobState) -> int:
    """Return how many workers the user asks for, even if kfext gave the job another number.

    The state of the job records the user's number, and holds while the job has kfext's number.
    """
    now = workers_of(job)
    return state.requested if state.requested and state.assigned == now else now


def workers_on_release(job: TrainingJob, state: JobState) -> int:
    """Return the number of workers of a job after kfext lets go of it.

    Nothing would give workers back later. A running job gets workers only if they can join the
    present workers, and loses none, because that may cost work.
    """
    requested, now = requested_workers(job, state), workers_of(job)
    if job.suspend:
        return requested
    return max(requested, now) if job.scaling.elastic else now


def with_workers(job: TrainingJob, count: int) -> TrainingJob:
    """Return the job as if it requested `count` workers."""
    return replace(
        job,
        groups=tuple(
            replace(group, replicas=count) if group.type == WORKER else group
            for group in job.groups
        ),
    )


def why_left_alone(job: TrainingJob, settings: Settings) -> str:
    """Return why kfext does not choose the size of a job that opted in; empty if it may."""
    if interrupts(job) and not settings.metrics.is_log:
        return (
            f"{METRICS} is {settings.metrics.source}, so kfext sees no checkpoint: set it to auto"
        )
    return why_not_scaled(job)


def why_not_scaled(job: TrainingJob) -> str:
    """Return why the workers of a job are left alone; empty if they may change.

    Each reason is a part of a sentence, and says what would change it.
    """
    return why_others(job) or why_same_slots(job) or why_one_size(job)


def why_one_size(job: TrainingJob) -> str:
    """Return why only the present number of workers can train; empty if another number can."""
    if workers_of(job) or WORKER not in job.kind.types:
        return job.scaling.fixed
    return "it has no workers: add a replica type Worker"


def starts_anew(job: TrainingJob) -> bool:
    """Return whether a job must be stopped at a checkpoint and resumed to change its size.

    It must if its number of workers is fixed while it runs, or if a worker that ends with an error
    fails the job (restartPolicy Never and ExitCode): torchrun exits with an error when its pod is
    deleted.
    """
    fails = any(group.fails for group in job.groups if group.type == WORKER)
    return fails or not job.scaling.elastic


def interrupts(job: TrainingJob) -> bool:
    """Return whether a change of size loses the work since the last checkpoint."""
    return job.scaling.restarts_all or starts_anew(job)
