"""Elastic jobs: the number of workers that a job may start with, if there is no room for all.

A job starts with as many workers as fit, at most the number it requests; it waits only if fewer
than its minimum fit. This holds only for jobs with a framework that can run with fewer workers.
"""

from dataclasses import replace

from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.kinds.job_kind import WORKER


def fewest_workers(job: TrainingJob, allowed: Range | None) -> int:
    """Return the fewest workers that a job may start with; all workers if it is not elastic.

    `allowed`: the range that kfext may choose from (core.companion.stand_down.open_range). It
    counts the pods that train: Master, Chief and the workers.
    """
    asked = workers_of(job)
    if allowed is None or not job.scaling.any_start:
        return asked
    others = job.training_pods - asked
    return min(max(allowed.minimum - others, job.scaling.fewest, 1), asked)


def workers_of(job: TrainingJob) -> int:
    """Return how many workers a job has."""
    return sum(group.replicas for group in job.groups if group.type == WORKER)


def asked_workers(job: TrainingJob, state: JobState) -> int:
    """Return how many workers the user asks for, even if kfext gave the job another number.

    The state of the job records the user's number, and holds while the job has kfext's number.
    """
    now = workers_of(job)
    return state.asked if state.asked and state.admitted == now else now


def workers_let_go(job: TrainingJob, state: JobState) -> int:
    """Return the number of workers of a job after kfext lets go of it.

    Nothing would give workers back later. A running job gets workers only if they can join the
    present workers, and loses none, because that may cost work.
    """
    asked, now = asked_workers(job, state), workers_of(job)
    if job.suspend:
        return asked
    return max(asked, now) if job.scaling.elastic else now


def with_workers(job: TrainingJob, count: int) -> TrainingJob:
    """Return the job as if it requested `count` workers."""
    return replace(
        job,
        groups=tuple(
            replace(group, replicas=count) if group.type == WORKER else group
            for group in job.groups
        ),
    )
