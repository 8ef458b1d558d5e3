"""The single order in which jobs start and scale up. Only the queue uses it."""

from kfext.model.job import TrainingJob

QueueKey = tuple[int, float, float, str, str, str]
"""The unique sort key of a job: the smallest is first."""
PATIENCE = 16.0
"""Jobs are ordered by created + PATIENCE x expected duration, so that younger jobs delay no job
without end."""
LONGEST_HEAD_START = 7 * 86_400.0
"""No job follows a job that was created so many seconds later, regardless of durations."""


def queue_key(
    job: TrainingJob, priority: int, length: float, *, projected: float = 0.0
) -> QueueKey:
    """Return a job's sort key: by priority, by usage, then by expected duration and age.

    `length`: its expected duration in seconds.
    `projected`: see UsageOrder; equal for all jobs if usage does not count.
    Ties are broken by name, so that the order survives a restart.
    """
    head_start = min(PATIENCE * length, LONGEST_HEAD_START)
    names = (job.namespace, job.name, job.kind.name)
    return (-priority, projected, job.created + head_start, *names)
