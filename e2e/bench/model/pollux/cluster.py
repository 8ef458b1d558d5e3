"""A cluster of GPUs in which time passes in ticks, and a scheduler decides between them.

A job that gets other GPUs stands still for 30 s. A job may end within a tick; its GPUs are free at
the next.
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
"""Seconds that a job stands still when its GPUs change."""

Allocation = tuple[int, ...]
"""The node of each GPU of a job, one node after the other; empty if the job waits."""
_NO_BATCH = Batch(0, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """A job as it was submitted.

    `submitted`: seconds since the start. `gpus`, `batch`: the tuned request of a rigid job, the
    batch in samples of all GPUs.
    """

    name: str
    submitted: int
    application: Application
    gpus: int
    batch: int


@dataclass(slots=True)
class Job:
    """A job in the cluster.

    `epoch`: the epochs that have ended. `progress`: see `application`. `pause`: seconds until
    training continues. `service`: GPU-seconds held until now. `restarts`: without the first start.
    `noise`: the noise that the last step showed. `ended`: the second of its end.
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
        """The GPUs on each of its nodes."""
        return tuple(len([*gpus]) for _, gpus in groupby(self.allocation))


class Scheduler(Protocol):
    """Decides at each tick which GPUs each job has, and which batch a job trains with."""

    def allocate(self, jobs: Sequence[Job], *, now: int) -> Mapping[str, Allocation]:
        """Return the allocations of the jobs that train next.

        `jobs`: all that came and have not ended, in the order of submission. `now`: seconds.
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
        came = [job for job in running if job.request.submitted <= now]
        allocations = scheduler.allocate(came, now=now) if came else {}
        for job in came:
            if (allocation := allocations.get(job.name, ())) != job.allocation:
                _move(job, allocation, scheduler)
    return {job.name: job.ended - job.request.submitted for job in jobs if job.ended is not None}


def packed(gpus: int) -> Placement:
    """Return the placement of so many GPUs on the fewest nodes: all are full but the last."""
    full, rest = divmod(gpus, GPUS_OF_NODE)
    return (GPUS_OF_NODE,) * full + (rest,) * bool(rest)


def most_free_first(
    kept: Mapping[str, Allocation], sizes: Mapping[str, int]
) -> dict[str, Allocation]:
    """Return what is kept, and GPUs for further jobs: each takes the node with most free GPUs.

    `sizes`: the GPUs of each further job, in order. They must be free.
    """
    free = Counter(dict.fromkeys(range(NODES), GPUS_OF_NODE))
    free.subtract(node for allocation in kept.values() for node in allocation)
    allocations = dict(kept)
    for name, size in sizes.items():
        allocation: Allocation = ()
        while len(allocation) < size:
            node = max(free, key=lambda node: free[node])  # the first of equals
            taken = min(free[node], size - len(allocation))
            allocation += (node,) * taken
            free[node] -= taken
        allocations[name] = allocation
    return allocations


def _move(job: Job, allocation: Allocation, scheduler: Scheduler) -> None:
    job.allocation = allocation
    if allocation:
        job.pause = RESTART
        job.restarts += 1
        job.batch = scheduler.batch(job)


def _train(job: Job, scheduler: Scheduler, *, now: int) -> None:
    """Let a job train for a tick."""
    if not job.allocation:
        return
    stands = min(job.pause, TICK)
    job.pause -= stands
    at, until, application, placement = now + stands, now + TICK, job.application, job.placement
    while at < until and job.ended is None:
        samples = job.batch.samples(len(job.allocation))
        rate = application.rate(placement, job.batch, job.epoch)
        job.noise = application.noise(samples, job.epoch)
        end = float(application.ends[job.epoch])
        if (progress := job.progress + rate * (until - at)) < end:
            job.progress, at = progress, until
        else:
            at += round((end - job.progress) / rate)
            job.progress, job.epoch = end, job.epoch + 1
            job.ended = at if job.epoch == application.epochs else None
        job.batch = scheduler.batch(job)
    job.service += ((until if job.ended is None else job.ended) - now) * len(job.allocation)
