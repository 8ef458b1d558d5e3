"""A cluster of GPUs in which time advances in ticks, with a scheduler's decision after each.

A job pauses for 30 s when its GPUs change. A job may end within a tick; its GPUs are then free at
the next tick.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from e2e.bench.model.pollux.application import Application, Batch, Noise
from e2e.bench.model.pollux.step_time import Placement

NODES, GPUS_OF_NODE = 16, 4
GPUS = NODES * GPUS_OF_NODE
TICK = 60
"""Seconds between two decisions."""
RESTART = 30
"""The pause of a job when its GPUs change, in seconds."""

Allocation = tuple[int, ...]
"""The node of each GPU of a job, GPUs of a node together; empty if the job waits."""
_NO_BATCH = Batch(0, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """A job as submitted.

    `submitted`: seconds since the start. `gpus`, `batch`: the request as tuned for a rigid job;
    the batch counts the samples of all GPUs.
    """

    name: str
    submitted: int
    application: Application
    gpus: int
    batch: int


@dataclass(slots=True)
class Job:
    """A job in the cluster.

    `epoch`: the number of ended epochs. `progress`: see `application`. `pause`: seconds until
    training continues. `service`: GPU-seconds used so far. `restarts`: starts after the first.
    `noise`: the last step's. `ended`: the second of its end.
    """

    request: Request
    allocation: Allocation = ()
    batch: Batch = _NO_BATCH
    epoch: int = 0
    progress: float = 0.0
    pause: int = 0
    service: int = 0
    restarts: int = -1
    noise: Noise | None = None
    ended: int | None = None

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def application(self) -> Application:
        return self.request.application

    @property
    def placement(self) -> Placement:
        return tuple(len([*gpus]) for _, gpus in groupby(self.allocation))


class Scheduler(Protocol):
    """Decides at each tick on the GPUs and the batch of each job."""

    def allocate(self, jobs: Sequence[Job], *, now: int) -> Mapping[str, Allocation]:
        """Return the allocations of the jobs that train next.

        `jobs`: all jobs that have arrived and not ended, in order of submission. `now`: seconds.
        """
        ...

    def batch(self, job: Job) -> Batch:
        """Return the batch for the placement of a job; called after each epoch and each tick."""
        ...


def run(requests: Sequence[Request], scheduler: Scheduler) -> dict[str, int]:
    """Return the seconds from the submission of each job to its end."""
    jobs = [Job(request) for request in requests]
    running, now = jobs, 0
    while running:
        for job in running:
            _train(job, scheduler, now=now)
        now += TICK
        running = [job for job in jobs if job.ended is None]
        arrived = [job for job in running if job.request.submitted <= now]
        allocations = scheduler.allocate(arrived, now=now) if arrived else {}
        for job in arrived:
            if (allocation := allocations.get(job.name, ())) != job.allocation:
                _move(job, allocation, scheduler)
    return {job.name: job.ended - job.request.submitted for job in jobs if job.ended is not None}


def packed(gpus: int) -> Placement:
    """Return the placement of GPUs on the fewest nodes: all but the last are full."""
    full, remaining = divmod(gpus, GPUS_OF_NODE)
    return (GPUS_OF_NODE,) * full + (remaining,) * bool(remaining)


def most_free_first(
    kept: Mapping[str, Allocation], sizes: Mapping[str, int]
) -> dict[str, Allocation]:
    """Return the kept allocations, and allocations of further jobs on nodes with most free GPUs.

    `sizes`: the GPUs of each further job, in order; so many GPUs must be free.
    """
    free = Counter(dict.fromkeys(range(NODES), GPUS_OF_NODE))
    free.subtract(node for allocation in kept.values() for node in allocation)
    allocations = dict(kept)
    for name, size in sizes.items():
        allocation: Allocation = ()
        while len(allocation) < size:
            node = max(free, key=lambda node: free[node])  # the first of equals
            count = min(free[node], size - len(allocation))
            allocation += (node,) * count
            free[node] -= count
        allocations[name] = allocation
    return allocations


def _move(job: Job, allocation: Allocation, scheduler: Scheduler) -> None:
    job.allocation = allocation
    if allocation:
        job.pause = RESTART
        job.restarts += 1
        job.batch = scheduler.batch(job)


def _train(job: Job, scheduler: Scheduler, *, now: int) -> None:
    if not job.allocation:
        return
    pause = min(job.pause, TICK)
    job.pause -= pause
    second, until, application, placement = now + pause, now + TICK, job.application, job.placement
    while second < until and job.ended is None:
        samples = job.batch.samples(len(job.allocation))
        rate = application.rate(placement, job.batch, job.epoch)
        job.noise = application.noise(samples, job.epoch)
        end = float(application.ends[job.epoch])
        if (progress := job.progress + rate * (until - second)) < end:
            job.progress, second = progress, until
        else:
            second += round((end - job.progress) / rate)
            job.progress, job.epoch = end, job.epoch + 1
            job.ended = second if job.epoch == application.epochs else None
        job.batch = scheduler.batch(job)
    job.service += ((until if job.ended is None else job.ended) - now) * len(job.allocation)
