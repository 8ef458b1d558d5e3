"""A lower bound of the mean time of a job in a world, which no scheduler reaches.

The larger of two bounds counts. No job ends before it would alone at its best size. And no order of
the work ends sooner than the least remaining work first, on one machine that is as fast as all
nodes together and works for each job with the number of pods that wastes least.
Source of the second: the squashed area of malleable jobs, Turek et al., SPAA 1994.
"""

import heapq
from collections.abc import Iterator
from statistics import fmean

from kfext.sim.cluster import World
from kfext.sim.jobs import JobSpec, Style


def lower_bound(world: World) -> float:
    """Return a mean time in seconds that the jobs of a world do not fall below."""
    cores = sum(size.cpu for size in world.nodes.values()) / 1000
    alone = fmean(min(seconds for _, seconds in _sizes(job, cores)) for job in world.jobs)
    return max(alone, _least_work_first(world, cores))


def _sizes(job: JobSpec, cores: float) -> Iterator[tuple[float, float]]:
    """Yield the cores and the seconds of a job at each size that it may have."""
    low, high = job.bounds or (job.workers, job.workers)
    for workers in range(low, high + 1):
        requested = (workers + job.servers + job.leaders) * job.cpu / 1000
        if requested <= cores:
            training = job.steps * job.pace.seconds(workers + job.leaders)
            meets = 0.0 if job.style is Style.SERVERS else job.meets
            yield requested, job.starts + meets + training


def _least_work_first(world: World, cores: float) -> float:
    """Return the mean time if the job with the least remaining work always has all cores."""
    arrivals = sorted(
        (job.arrives, min(used * seconds for used, seconds in _sizes(job, cores)) / cores)
        for job in world.jobs
    )
    left: list[tuple[float, float]] = []  # the remaining seconds with all cores, and the arrival
    now, total, at = 0.0, 0.0, 0
    while left or at < len(arrivals):
        if not left:
            now = max(now, arrivals[at][0])
        while at < len(arrivals) and arrivals[at][0] <= now:
            arrived, work = arrivals[at]
            heapq.heappush(left, (work, arrived))
            at += 1
        work, arrived = heapq.heappop(left)
        until = arrivals[at][0] if at < len(arrivals) else now + work
        if now + work <= until:
            now += work
            total += now - arrived
        else:
            heapq.heappush(left, (work - (until - now), arrived))
            now = until
    return total / len(arrivals)
