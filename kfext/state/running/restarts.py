"""What a stop and a start cost a job: the time to its first step, and the grace of its pods."""

import math
from collections.abc import Collection

from kfext.core.elastic import starts_anew
from kfext.core.queue.duration import START_SECONDS
from kfext.model.pod import Pod
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.running_job import RunningJob


def usual_pause(job: RunningJob) -> float:
    """Return the seconds that the last change of its size stopped a job, or an estimate."""
    return job.restart.pause or START_SECONDS + grace(job)


def usual_restart(job: RunningJob) -> float:
    """Return the seconds that a stop and a start of all pods cost a job.

    A change in place takes less, so its pause says little of a stop.
    """
    pause = usual_pause(job)
    in_place = job.tracked.state.scale.changed_at > 0 and not starts_anew(job.tracked.job)
    return max(pause, START_SECONDS + grace(job)) if in_place else pause


def record_start(job: RunningJob, progress: JobsProgress, pods: Collection[Pod]) -> None:
    """Record how long a job took to its first step, if its size has never changed.

    A controller that found the job running may not have read its first lines.
    """
    restart, created = job.restart, max((pod.created for pod in pods), default=math.inf)
    if restart.begins and not restart.pause:
        first = progress.followed(job.uid).resumed(since=created, after=created)
        if first is not None and first > created:
            restart.pause = first - created + grace(job)


def grace(job: RunningJob) -> int:
    """Return the longest grace period of the pods of a job, in seconds."""
    return max((group.grace for group in job.tracked.job.groups), default=0)
