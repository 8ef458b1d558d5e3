"""Elastic jobs: with how many workers a job may start when all of them have no room now.

A job starts with the most that fits, at most what it asked for; only its minimum can hold it back
(DESIGN section 5). Only jobs that their framework lets run with fewer workers are started short.
"""

from dataclasses import replace

from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob

WORKER = "Worker"
_NOT_TRAINING = {"PS", "Evaluator"}


def fewest_workers(job: TrainingJob, allowed: Range | None) -> int:
    """Return the least workers that a job may start with; all of them if it cannot start short.

    The setting counts training pods, so Master and Chief with the workers.
    """
    asked = workers_of(job)
    if allowed is None or not job.elastic:
        return asked
    others = sum(
        group.replicas for group in job.groups if group.type not in {WORKER, *_NOT_TRAINING}
    )
    return min(max(allowed.minimum - others, job.fewest, 1), asked)


def workers_of(job: TrainingJob) -> int:
    """Return how many workers a job has."""
    return sum(group.replicas for group in job.groups if group.type == WORKER)


def with_workers(job: TrainingJob, count: int) -> TrainingJob:
    """Return the job as if it had asked for so many workers."""
    return replace(
        job,
        groups=tuple(
            replace(group, replicas=count) if group.type == WORKER else group
            for group in job.groups
        ),
    )
