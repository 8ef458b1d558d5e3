"""The shipped worlds, and worlds shaped like DRAGON's, SpeCon's and FlowCon's workloads.

In `spread` jobs often fit no single node; in `threads` jobs of one thread run on four nodes of one
CPU.
"""

from dataclasses import replace
from functools import partial
from random import Random

from kfext.sim.cluster import World
from kfext.sim.jobs import PYTORCH, TENSORFLOW, JobSpec, Pace, Saving, Style
from kfext.sim.nodes import NodeSize
from kfext.sim.worlds import WORLDS as SHIPPED
from kfext.sim.worlds import Draw, arriving, cluster, lognormal, spread_over, thread

_LOADS = (0.5, 0.7, 0.8, 0.9)
_SPREAD_JOBS, _SPREAD_CLASSES = 250, 24
_SPREAD_PODS = (1, 1, 2, 2, 4, 4, 8, 8)
_SPREAD_SECONDS = 900.0
"""The mean length of a class of jobs."""
_THREAD_MEAN, _THREAD_SHORTEST, _THREAD_LONGEST = 100.0, 15.0, 800.0
"""Core-seconds of a job of one thread."""
_THREAD_CV = 0.8
"""The standard deviation of these lengths, divided by their mean."""


def server_jobs(seed: int, *, load: float) -> World:
    """Return TFJobs with a server, which may have a quarter to twice their requested workers.

    Source of the shape: Lin et al., DRAGON, CLOSER 2019. Lengths and sizes are as in `cluster`.
    """
    jobs = [_with_server(spec) for spec in cluster(seed, load=load).jobs]
    return spread_over(jobs, Random(seed), load=load)


def _with_server(spec: JobSpec) -> JobSpec:
    size = spec.workers + spec.leaders
    job = replace(spec, kind=TENSORFLOW, style=Style.SERVERS, workers=size, leaders=0, servers=1)
    bounds = (max(1, size // 4), 2 * size)
    return replace(job, bounds=bounds, starts=13.0, saving=Saving.NEVER)


def spread(seed: int, *, load: float, speed: float) -> World:
    """Return jobs of up to eight pods, which often fit no node; eight nodes hold eight pods each.

    `speed`: a job's speed on several nodes, divided by its speed on one node.
    """
    random = Random(seed)
    pace = Pace(0.0, 1.0, 0.0, spread=speed)
    base = JobSpec("", PYTORCH, Style.GANG, 0.0, 0, pace, 0, leaders=1, migrate="checkpointed")
    base = replace(base, saving=Saving.ON_REQUEST, starts=4.0, meets=4.0, answers=3.0, prints=10.0)
    classes = [
        (lognormal(random, _SPREAD_SECONDS, cv=1.5), random.choice(_SPREAD_PODS))
        for _ in range(_SPREAD_CLASSES)
    ]
    specs = []
    for number in range(_SPREAD_JOBS):
        kind = random.randrange(len(classes))
        seconds = min(classes[kind][0], 20 * _SPREAD_SECONDS) * random.uniform(0.8, 1.25)
        named = replace(base, name=f"job-{number}", trains=f"program-{kind}")
        specs.append(replace(named, workers=classes[kind][1] - 1, steps=max(20, round(seconds))))
    return spread_over(specs, random, load=load, nodes=8, per_node=8)


def threads(seed: int, *, jobs: int, within: float, shows_end: bool = True) -> World:
    """Return jobs that arrive within `within` seconds; their losses converge early or late.

    `shows_end`: whether their logs name the number of steps.
    """
    random = Random(seed)
    specs = []
    for number in range(jobs):
        drawn = lognormal(random, _THREAD_MEAN, cv=_THREAD_CV)
        spec = thread(f"job-{number}", min(max(drawn, _THREAD_SHORTEST), _THREAD_LONGEST))
        halves = spec.steps * random.uniform(0.05, 0.4)
        specs.append(replace(spec, halves=halves, shows_end=shows_end))
    times = sorted(random.uniform(0, within) for _ in specs)
    nodes = {f"node-{number}": NodeSize(1000) for number in range(4)}
    return World(nodes, tuple(map(arriving, specs, times)))


DRAGONS: dict[str, Draw] = {f"dragon-{load}": partial(server_jobs, load=load) for load in _LOADS}
THREADS: dict[str, Draw] = {
    "threads-50": partial(threads, jobs=50, within=1500.0),
    "threads-20": partial(threads, jobs=20, within=300.0),
    "threads-20-blind": partial(threads, jobs=20, within=300.0, shows_end=False),
}
"""SpeCon's 50 jobs at a load of 0.8, and FlowCon 2's 20 jobs, also with unknown total steps."""
WORLDS: dict[str, Draw] = {
    **SHIPPED,
    **DRAGONS,
    **THREADS,
    "spread-0.8": partial(spread, load=0.8, speed=0.7),
}
