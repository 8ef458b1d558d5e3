"""A lower bound of the mean time of a job in a world, for any scheduler.

It is the larger of two bounds. First, no job ends sooner than alone at its best size. Second, no
schedule has a lower mean than least remaining work first, on a machine as fast as all nodes
together that runs each job with the most efficient number of pods.
Source of the second: the squashed area of malleable jobs, Turek et al., SPAA 1994.
"""

import heapq
from collections.abc import Iterator
from statistics import fmean

from kfext.sim.cluster import World
from kfext.sim.jobs import JobSpec, Style


def lower_bound(world: World) -> float:
    """Return a lower bound of the mean time of the jobs of a world, in seconds."""
    cores = sum(size.cpu for size in world.nodes.values()) / 1000
    alone = fmean(min(seconds for _, seconds in _sizes(job, cores)) for job in world.jobs)
    return max(alone, _least_work_first(world, cores))


def _sizes(job: JobSpec, cores: float) -> Iterator[tuple[float, float]]:
    """Yield the cores and the duration in seconds of a job at each allowed size."""
    low, high = job.bounds or (job.workers, job.workers)
    for workers in range(low, high + 1):
        requested = (workers + job.servers + job.leaders) * job.cpu / 1000
        if requested <= cores:
            training = job.steps * job.pace.seconds(workers + job.leaders)
            rendezvous = 0.0 if job.style is Style.SERVERS else job.meets
            yield requested, job.starts + rendezvous + training


def _least_work_first(world: World, cores: float) -> float:
    """Return the mean time if the job with the least remaining work always has all cores."""
    arrivals = sorted(
        (job.arrives, min(used * seconds for used, seconds in _sizes(job, cores)) / cores)
        for job in world.jobs
    )
    queue: list[tuple[float, float]] = []  # the remaining seconds with all cores, and the arrival
    now, total, number = 0.0, 0.0, 0
    while queue or number < len(arrivals):
        if not queue:
            now = max(now, arrivals[number][0])
        while number < len(arrivals) and arrivals[number][0] <= now:
            arrived, work = arrivals[number]
            heapq.heappush(queue, (work, arrived))
            number += 1
        work, arrived = heapq.heappop(queue)
        until = arrivals[number][0] if number < len(arrivals) else now + work
        if now + work <= until:
            now += work
            total += now - arrived
        else:
            heapq.heappush(queue, (work - (until - now), arrived))
            now = until
    return total / len(arrivals)
