"""Elastic jobs: with how many workers a job may start when there is no capacity for all of them.

A job starts with as many workers as fit, at most the number it requests; it waits only if fewer
than its minimum fit. This holds only for jobs whose framework can run with fewer workers.
"""

from dataclasses import replace

from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.kinds.job_kind import WORKER


def fewest_workers(job: TrainingJob, allowed: Range | None) -> int:
    """Return the fewest workers that a job may start with; all of them if it is not elastic.

    `allowed`: the range in which kfext may choose (core.companion.stand_down.open_range). It counts
    the pods that train: Master and Chief as well as the workers.
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
    """Return how many workers the user asks for, where kfext gave the job another number.

    That is noted in its state, and holds for as long as the job has the number that kfext gave it.
    """
    now = workers_of(job)
    return state.asked if state.asked and state.admitted == now else now


def workers_let_go(job: TrainingJob, state: JobState) -> int:
    """Return with how many workers a job goes on once kfext lets go of it.

    Nothing would give them back later. While it runs, workers are added where those that run take
    part with them, and none is taken, as that may cost work.
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
