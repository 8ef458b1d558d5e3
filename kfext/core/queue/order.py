"""The order in which jobs start and get workers. The queue alone uses it: there is one order."""

from kfext.model.job import TrainingJob

Turn = tuple[int, float, str, str, str]
"""The sort key of a job's position: smaller comes first. No two jobs have the same."""
PATIENCE = 4.0
"""A job goes before an older job if it came at most this many times its own length later than that
job and that job's length, the same many times, allow: so no job waits for younger jobs without end.
"""


def turn(job: TrainingJob, priority: int, length: float) -> Turn:
    """Return a job's sort key: by priority, then sooner the shorter, then by age.

    `length`: the seconds that it is expected to take; equal for all jobs, the older job goes first.
    Ties go by name, so that the order survives a restart.
    """
    return (-priority, job.created + PATIENCE * length, job.namespace, job.name, job.kind.name)
