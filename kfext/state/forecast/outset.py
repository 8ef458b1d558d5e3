"""The outset of a forecast: a recording of the cluster, and the expected durations of its jobs."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kfext.core.elastic import requested_workers, with_workers
from kfext.model.job import TrainingJob
from kfext.model.moment import Moment
from kfext.model.snapshot import Snapshot
from kfext.names import HELD, PLACES, PLAN, STATE
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.planner.recording import snapshot_of
from kfext.state.waiting.durations import DurationEstimates

MAX_JOBS = 50
"""The number of jobs with a forecast, from the first of the queue. On 125 nodes, with 328 running
and 1,000 waiting jobs, a lookahead takes 1.5 s of CPU time, and 4.3 s with repeated arrivals."""
MAX_ARRIVALS = 20
_RECENT_SECONDS, _REPEATS = 1800.0, 3
"""The jobs that arrived in the last 1,800 s, at most 20, are expected to arrive again three times.
With 50 such jobs the same lookahead took 9.1 s."""
_STAYS_SECONDS = 60.0
"""Pods of a job that does not run may never end if they still exist after this time."""


@dataclass(frozen=True, slots=True)
class Length:
    """The expected duration of a job from the outset, or from its start, in seconds.

    `known`: whether its progress or its series shows it; else it is the usual duration.
    `typical`: the typical duration of its series, or None. `most`: the time to its deadline.
    """

    seconds: float
    known: bool = True
    typical: float | None = None
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class Outset:
    """The cluster at the time `now`, in epoch seconds, with the first jobs of the queue.

    `waiting`: the uids of the jobs to forecast, in the order of the queue. `arrivals`: the expected
    new jobs, with their creation times. `lengths`: the durations of all jobs, by uid. `usual`: the
    duration that is assumed if a duration is unknown. `staying`: the uids of jobs that do not run,
    with pods that may never end. In the snapshot, a step of each running job is being written.
    """

    now: float
    snapshot: Snapshot
    waiting: tuple[str, ...]
    arrivals: tuple[TrainingJob, ...]
    lengths: Mapping[str, Length]
    usual: float
    staying: frozenset[str]


def outset_of(planner: Planner, now: Moment) -> Outset:
    """Return the outset of a forecast. Later changes of the planner do not affect it.

    Running jobs are not changed: each ends as expected. New nodes are not expected, because an
    autoscaler may or may not add them.
    """
    cluster, queue = planner.cluster, planner.queue
    queued = (tracked.job.uid for tracked in queue.queued() if tracked.assumed is None)
    waiting = tuple(queued)[:MAX_JOBS]
    snapshot = snapshot_of(planner, now)
    running = {uid for uid, tracked in cluster.jobs.items() if _runs(tracked)}
    kept = {*waiting, *running, *(record.job_uid for record in snapshot.promises)}
    kept |= {snapshot.reservation.job_uid} if snapshot.reservation else set()
    jobs = {job.uid: job for job in snapshot.jobs if job.uid in kept or cluster.pods(job.uid)}
    lengths = {uid: _length(queue.durations, job, now=now.wall) for uid, job in jobs.items()}
    arrivals = list(_arrivals(planner, snapshot, now=now.wall))
    return Outset(
        now=now.wall,
        snapshot=replace(
            snapshot,
            jobs=tuple(jobs.values()),
            clocks={uid: replace(snapshot.clocks[uid], writing=uid in running) for uid in jobs},
            autoscaler=False,
            can_ask=False,
            creating=(),
            crowded=False,
        ),
        waiting=waiting,
        arrivals=tuple(job for job, _ in arrivals),
        lengths=lengths | {job.uid: length for job, length in arrivals},
        usual=queue.durations.usual(),
        staying=frozenset(left_behind(cluster, until=now.monotonic - _STAYS_SECONDS)),
    )


def left_behind(cluster: Cluster, *, until: float = math.inf) -> Iterator[str]:
    """Yield the uids of stopped jobs with pods on nodes, and without a change since `until`."""
    for uid, tracked in cluster.jobs.items():
        stays = not _runs(tracked) and tracked.settled_at < until
        if stays and any(pod.home and not pod.finished for pod in cluster.pods(uid)):
            yield uid


def _runs(tracked: TrackedJob) -> bool:
    """Return whether a job runs, or is being started."""
    job = tracked.job
    stopped = job.suspend and tracked.assumed is None
    return not (stopped or job.finished or job.deleting)


def _length(durations: DurationEstimates, job: TrainingJob, *, now: float) -> Length:
    typical, most = durations.typical(job), job.deadline or math.inf
    if job.suspend:
        known = durations.known(job) is not None
    else:
        most = max(0.0, (job.ends or math.inf) - now)
        known = durations.shown_remaining(job, now=now) is not None
        known |= typical is not None and not durations.is_late(job, now=now)
    return Length(min(durations.remaining(job, now=now), most), known, typical, most)


def _arrivals(
    planner: Planner, snapshot: Snapshot, *, now: float
) -> Iterator[tuple[TrainingJob, Length]]:
    """Yield the jobs that arrived recently, repeated at the same rate, with their durations."""
    tracked, durations = planner.cluster.jobs, planner.queue.durations
    recent = [
        job
        for job in snapshot.jobs
        if now - _RECENT_SECONDS < job.created <= now
        and tracked[job.uid].phase is not None
        and not job.started_by
    ]
    newest = sorted(recent, key=lambda job: (job.created, job.uid))[-MAX_ARRIVALS:]
    window = now - newest[0].created if len(newest) == MAX_ARRIVALS else _RECENT_SECONDS
    for number in range(_REPEATS):
        for job in newest:
            ran = now - job.started if job.started and not job.suspend else 0.0
            typical = durations.typical(job)
            seconds = ran + durations.remaining(job, now=now) if typical is None else typical
            created = job.created + (number + 1) * max(window, 1.0)
            size = requested_workers(job, tracked[job.uid].state)
            yield _repeat(with_workers(job, size), created, number), Length(seconds)


def _repeat(job: TrainingJob, created: float, number: int) -> TrainingJob:
    """Return a job as it was before kfext started it, under a new name."""
    marks = {key: value for key, value in job.annotations.items() if key not in {PLAN, STATE}}
    return replace(
        job,
        uid=f"{job.uid}-{number}",
        name=f"{job.name}-{number}",
        created=created,
        suspend=True,
        started=0.0,
        conditions={},
        annotations={**marks, HELD: ""},
        template_settings={
            key: value for key, value in job.template_settings.items() if key != PLACES
        },
    )
