"""The stop of a job, and the cost of a stop and a start in seconds."""

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
    """Return the write that stops a job with its present workers; `now`: epoch seconds."""
    training = job.tracked.job
    state = replace(state, scale=replace(state.scale, cause=""))
    state = suspended(state, training, pods, plan=job.tracked.plan, now=now)
    return Suspend(state, workers=workers_of(training))


def expected_pause(job: RunningJob) -> float:
    """Return the seconds that a change of size stops a job: the last such pause, or an estimate."""
    return job.restart.pause or START_SECONDS + grace(job)


def expected_restart(job: RunningJob) -> float:
    """Return the seconds that a stop and a start of all pods cost a job.

    The pause of a change in place is shorter, so it is only a lower bound.
    """
    pause = expected_pause(job)
    in_place = job.tracked.state.scale.changed_at > 0 and not starts_anew(job.tracked.job)
    return max(pause, START_SECONDS + grace(job)) if in_place else pause


def record_start(job: RunningJob, progress: JobsProgress, pods: Collection[Pod]) -> None:
    """Record the time to the first step of a job that kfext has followed since before its start.

    A controller that finds the job running may not have read its first lines.
    """
    restart, created = job.restart, max((pod.created for pod in pods), default=math.inf)
    if restart.begins and not restart.pause:
        first = progress.followed(job.uid).course.resumed(since=created, after=created)
        if first is not None and first > created:
            restart.pause = first - created + grace(job)


def grace(job: RunningJob) -> int:
    """Return the longest grace period of the pods of a job, in seconds."""
    return max((group.grace for group in job.tracked.job.groups), default=0)
