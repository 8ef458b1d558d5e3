"""The order in which jobs start and get workers. The queue alone uses it: there is one order."""

from kfext.model.job import TrainingJob

QueueKey = tuple[int, float, float, str, str, str]
"""The sort key of a job's position: smaller comes first. No two jobs have the same."""
PATIENCE = 16.0
"""Jobs are ordered by created + PATIENCE x expected duration: so no job waits for younger jobs
without end."""
LONGEST_HEAD_START = 7 * 86_400.0
"""No job comes after a job that was created so many seconds later, whatever their lengths."""


def queue_key(
    job: TrainingJob, priority: int, length: float, *, projected: float = 0.0
) -> QueueKey:
    """Return a job's sort key: by priority, by usage, then sooner the shorter, then by age.

    `projected`: see UsageOrder; equal for all jobs where usage does not count.
    `length`: the seconds that it is expected to take; equal for all jobs, the older job goes first.
    Ties go by name, so that the order survives a restart.
    """
    head_start = min(PATIENCE * length, LONGEST_HEAD_START)
    names = (job.namespace, job.name, job.kind.name)
    return (-priority, projected, job.created + head_start, *names)
