"""The write that stops a job, and the seconds that a stop and the next start cost it."""

import math
from collections.abc import Collection
from dataclasses import replace

from kfext.core.elastic import starts_anew, workers_of
from kfext.core.lifecycle.patience import suspended
from kfext.core.lifecycle.steps import Suspend
from kfext.core.queue.duration import START_SECONDS
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.running_job import RunningJob


def suspend_step(job: RunningJob, state: JobState, pods: Collection[Pod], *, now: float) -> Suspend:
    """Return the write that stops a job and keeps its number of workers; `now`: epoch seconds."""
    training = job.tracked.job
    state = replace(state, scale=replace(state.scale, cause=""))
    state = suspended(state, training, pods, plan=job.tracked.plan, now=now)
    return Suspend(state, workers=workers_of(training))


def expected_downtime(job: RunningJob) -> float:
    """Return the seconds that a change of size stops a job: as the last change, or an estimate."""
    return job.restart.downtime or START_SECONDS + grace(job)


def expected_restart(job: RunningJob) -> float:
    """Return the seconds that a stop and a start of all pods cost a job.

    The downtime of a change in place is shorter, so it is only a lower bound.
    """
    downtime = expected_downtime(job)
    in_place = job.tracked.state.scale.changed_at > 0 and not starts_anew(job.tracked.job)
    return max(downtime, START_SECONDS + grace(job)) if in_place else downtime


def record_start(job: RunningJob, progress: JobsProgress, pods: Collection[Pod]) -> None:
    """Record the downtime of a job's start, if kfext followed the job before it started.

    A controller that finds the job already running may not have read the first lines of its log.
    """
    restart, created = job.restart, max((pod.created for pod in pods), default=math.inf)
    if restart.was_starting and not restart.downtime:
        first_step = progress.followed(job.uid).course.resumed_at(since=created, after=created)
        if first_step is not None and first_step > created:
            restart.downtime = first_step - created + grace(job)


def grace(job: RunningJob) -> int:
    """Return the longest grace period of the pods of a job, in seconds."""
    return max((group.grace for group in job.tracked.job.groups), default=0)
