"""The order in which jobs start and scale up."""

from kfext.model.job import TrainingJob

QueueKey = tuple[int, float, float, str, str, str]
"""The unique sort key of a job: the smallest is first."""
PATIENCE = 16.0
"""Jobs are ordered by creation time + PATIENCE x expected duration: a shorter job may come first,
but no job waits without end for younger jobs."""
LONGEST_HEAD_START = 7 * 86_400.0
"""No job comes after a job that was created this many seconds later, whatever their durations."""


def queue_key(
    job: TrainingJob, priority: int, length: float, *, projected: float = 0.0
) -> QueueKey:
    """Return a job's sort key: by priority, by usage, then by expected duration and age.

    `length`: its expected duration in seconds.
    `projected`: the projected usage of its namespace (UsageOrder); equal for all jobs if usage does
        not count.
    Ties are broken by name, so that the order survives a restart.
    """
    head_start = min(PATIENCE * length, LONGEST_HEAD_START)
    names = (job.namespace, job.name, job.kind.name)
    return (-priority, projected, job.created + head_start, *names)
