"""The order in which jobs start and get workers. The queue alone uses it: there is one order."""

from kfext.model.job import TrainingJob

QueueKey = tuple[int, float, str, str, str]
"""The sort key of a job's position: smaller comes first. No two jobs have the same."""
PATIENCE = 4.0
"""Jobs are ordered by created + PATIENCE x expected duration: so no job waits for younger jobs
without end."""


def queue_key(job: TrainingJob, priority: int, length: float) -> QueueKey:
    """Return a job's sort key: by priority, then sooner the shorter, then by age.

    `length`: the seconds that it is expected to take; equal for all jobs, the older job goes first.
    Ties go by name, so that the order survives a restart.
    """
    return (-priority, job.created + PATIENCE * length, job.namespace, job.name, job.kind.name)
