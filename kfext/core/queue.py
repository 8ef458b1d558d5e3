"""In which order waiting jobs are considered."""

from collections.abc import Iterable

from kfext.model.job import TrainingJob


def in_order(jobs: Iterable[TrainingJob]) -> list[TrainingJob]:
    """Return the jobs, oldest first; of equal age in name order, so that restarts agree."""
    return sorted(jobs, key=lambda job: (job.created, job.namespace, job.name, job.kind.name))
