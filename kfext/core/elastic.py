"""Elastic jobs: with how many workers a job may start if there is no capacity for all of them.

A job starts with as many workers as fit, at most its requested size; it waits only if fewer than
its minimum fit. This holds only for jobs with a framework that can run with fewer workers.

A job that kfext could not scale up later starts with all its workers, and is not scaled down.
"""

from dataclasses import replace

from kfext.core.eligibility import why_managed, why_same_slots
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.kinds.job_kind import WORKER
from kfext.model.policy import Mode
from kfext.names import METRICS

SCALE_NAME = "scale"
"""The name of the policy that changes numbers of workers."""


def highest_mode(settings: Settings) -> Mode:
    """Return the highest mode of `scale` that the settings of a job allow."""
    return Mode.OFF if settings.elastic is None else Mode.ACT


def scale_mode(settings: Settings) -> Mode:
    """Return the mode in which the number of workers of a job may change."""
    return settings.choice(SCALE_NAME, highest_mode(settings)).mode


def allowed_range(job: TrainingJob, settings: Settings) -> Range | None:
    """Return the range of training pods that kfext may choose from for a job, or None.

    Master and Chief count as training pods.
    """
    acts = scale_mode(settings) is Mode.ACT
    return settings.elastic if acts and not why_ineligible(job, settings) else None


def fewest_workers(job: TrainingJob, allowed: Range | None) -> int:
    """Return the fewest workers that a job may start with; all workers if it is not elastic.

    `allowed`: the range of training pods (`allowed_range`): Master, Chief and the workers.
    """
    requested = workers_of(job)
    if allowed is None or not job.scaling.any_start:
        return requested
    others = job.training_pods - requested
    return min(max(allowed.minimum - others, job.scaling.fewest, 1), requested)


def workers_of(job: TrainingJob) -> int:
    """Return the number of workers of a job."""
    return sum(group.replicas for group in job.groups if group.type == WORKER)


def requested_workers(job: TrainingJob, state: JobState) -> int:
    """Return the requested size of a job, even if kfext assigned another number of workers.

    The requested size in `state` counts while the job has the number that kfext assigned.
    """
    current = workers_of(job)
    return state.requested if state.requested and state.assigned == current else current


def workers_on_release(job: TrainingJob, state: JobState) -> int:
    """Return the number of workers of a job after its release.

    Nothing scales it up later. A running job is scaled up only if new workers can join its present
    workers. It is not scaled down, because that may cost work.
    """
    requested, current = requested_workers(job, state), workers_of(job)
    if job.suspend:
        return requested
    return max(requested, current) if job.scaling.elastic else current


def with_workers(job: TrainingJob, count: int) -> TrainingJob:
    """Return the job as if it requested `count` workers."""
    return replace(
        job,
        groups=tuple(
            replace(group, replicas=count) if group.type == WORKER else group
            for group in job.groups
        ),
    )


def why_ineligible(job: TrainingJob, settings: Settings) -> str:
    """Return the obstacle to scaling a job that opted in, or an empty string."""
    if interrupts(job) and not settings.metrics.is_log:
        return (
            f"{METRICS} is {settings.metrics.source}, so kfext sees no checkpoint: set it to auto"
        )
    return why_not_scaled(job)


def why_not_scaled(job: TrainingJob) -> str:
    """Return the obstacle to any change of the size of a job, or an empty string.

    Each obstacle is a part of a sentence, with a remedy if there is one.
    """
    return why_managed(job) or why_same_slots(job) or why_one_size(job)


def why_one_size(job: TrainingJob) -> str:
    """Return the cause that fixes the number of workers, or an empty string."""
    if workers_of(job) or WORKER not in job.kind.types:
        return job.scaling.fixed
    return "it has no workers: add a replica type Worker"


def starts_anew(job: TrainingJob) -> bool:
    """Return whether a job must be stopped at a checkpoint and resumed to change its size.

    It must if its number of workers is fixed while it runs, or if an error of a worker fails the
    job (restartPolicy Never and ExitCode): torchrun exits with an error when its pod is deleted.
    """
    fails = any(group.fails for group in job.groups if group.type == WORKER)
    return fails or not job.scaling.elastic


def interrupts(job: TrainingJob) -> bool:
    """Return whether a change of size loses the work since the last checkpoint."""
    return job.scaling.restarts_all or starts_anew(job)
