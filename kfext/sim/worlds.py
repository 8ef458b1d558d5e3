"""Worlds in which policies are compared, each drawn from a seed.

Their sources are nine jobs of e2e/bench/stream, and the workloads of Pollux (Qiao et al., OSDI
2021) with Poisson arrivals and lognormal durations. A slot is the capacity for a pod of one CPU.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from kfext.sim.cluster import World
from kfext.sim.gpus import gpus
from kfext.sim.jobs import PYTORCH, TENSORFLOW, JobSpec, Pace, Saving, Style, random_job
from kfext.sim.nodes import NodeSize

_NODES, _PER_NODE = 4, 4
"""The number of nodes of a world, and of slots of a node."""
_JOBS = 60
"""The number of jobs of a world."""
_ELASTIC = 0.6
"""The fraction of the classes that are elastic."""
_MEAN_SECONDS = 240.0
_SHORTEST, _LONGEST = 30.0, 20 * _MEAN_SECONDS
_SIZES = (1, 2, 2, 4, 4, 8)
_CLASSES = 12
_START_SECONDS = 15.0
"""The assumed time from the creation of a job's pods to its first step."""


def random_world(seed: int) -> World:
    """Draw a small cluster with more work than capacity, and idle time at the end."""
    random = Random(seed)
    nodes = {
        f"node-{number}": NodeSize(random.choice([2000, 4000, 4000]))
        for number in range(random.randint(2, 4))
    }
    jobs: list[JobSpec] = []
    at, number = 5.0, random.randint(3, 8)
    while len(jobs) < number:
        job = random_job(random, len(jobs), arrives=at)
        if job.pods <= sum(size.cpu // job.cpu for size in nodes.values()):
            jobs.append(job)
            at += random.choice([0, 1, 10, 30, 60, 120])
    return World(nodes, tuple(jobs))


def stream(seed: int) -> World:
    """Return nine jobs that arrive within five minutes at eight slots, as in e2e/bench/stream."""
    random = Random(seed)
    jobs = random.sample(STREAM, len(STREAM))
    times = [0.0, *sorted(random.uniform(0, 300) for _ in jobs[1:])]
    nodes = {f"node-{number}": NodeSize(2000) for number in range(4)}
    return World(nodes, tuple(map(arriving, jobs, times)))


def _torch(name: str, minimum: int, requested: int, most: int, steps: int) -> JobSpec:
    pace = Pace(0.664, 0.03, 0.0)
    spec = JobSpec(name, PYTORCH, Style.TORCHRUN, 0.0, requested, pace, steps)
    saves = Saving.ON_REQUEST
    return replace(spec, bounds=(minimum, most), starts=6.0, meets=13.0, saving=saves, answers=2.0)


def _servers(name: str, minimum: int, requested: int, most: int, steps: int) -> JobSpec:
    pace = Pace(0.0586, 0.0, 0.0)
    spec = JobSpec(name, TENSORFLOW, Style.SERVERS, 0.0, requested, pace, steps, servers=1)
    return replace(spec, bounds=(minimum, most), starts=13.0)


def _rigid(name: str, pods: int, steps: int, seconds: float) -> JobSpec:
    """Return a job of a Master and workers with steps of this many seconds."""
    pace = Pace(seconds * pods, 0.0, 0.0)
    spec = JobSpec(name, PYTORCH, Style.GANG, 0.0, pods - 1, pace, steps, leaders=1)
    return replace(spec, starts=6.0, meets=7.0)


STREAM = (
    _torch("elastic-wide", 2, 4, 8, 600),
    _torch("elastic-pair", 1, 2, 6, 450),
    _torch("elastic-late", 1, 4, 8, 520),
    _servers("server-wide", 1, 3, 6, 4200),
    _servers("server-small", 1, 2, 4, 2800),
    _rigid("rigid-pair-one", 2, 5200, 0.0154),
    _rigid("rigid-pair-two", 2, 3000, 0.015),
    _rigid("rigid-pair-three", 2, 4200, 0.0148),
    _rigid("rigid-four", 4, 4000, 0.0255),
)
"""The jobs of `stream`, which e2e/bench/stream runs on real nodes."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs that a user submits again and again, with equal requests and similar durations."""

    seconds: float
    workers: int
    style: Style
    pace: Pace


def cluster(
    seed: int, *, load: float, cv: float = 1.0, jobs: int = _JOBS, nodes: int = _NODES
) -> World:
    """Return jobs of twelve classes; while they arrive, their work is `load` of all slots.

    `cv`: the coefficient of variation of the durations of the classes.
    """
    random = Random(seed)

    def draw() -> JobClass:
        seconds = lognormal(random, _MEAN_SECONDS, cv=cv)
        style = random.choice([Style.TORCHRUN, Style.SERVERS])
        style = style if random.random() < _ELASTIC else Style.GANG
        pace = Pace(1.0, random.uniform(0.0, 0.08), random.uniform(0.0, 0.01))
        bounded = min(max(seconds, _SHORTEST), _LONGEST)
        return JobClass(bounded, random.choice(_SIZES), style, pace)

    classes = [draw() for _ in range(_CLASSES)]
    chosen = [random.randrange(_CLASSES) for _ in range(jobs)]
    specs = [
        of_class(
            f"job-{number}",
            replace(classes[kind], seconds=classes[kind].seconds * random.uniform(0.8, 1.25)),
            trains=f"program-{kind}",
        )
        for number, kind in enumerate(chosen)
    ]
    return spread_over(specs, random, load=load, nodes=nodes)


_MEASURED = {
    3: ((0, 104), (11, 109), (80, 100)),
    10: (
        *((0, 43), (13, 85), (26, 25), (45, 22), (50, 68)),
        *((65, 22), (76, 87), (79, 34), (85, 25), (100, 44)),
    ),
}
"""Number of jobs -> (arrival, core-seconds) of each, as measured in e2e/bench/companion."""
_LENGTHS = {3: (80, (40, 110, 300)), 10: (100, (25, 40, 80))}
"""Number of jobs -> the seconds within which they arrive, and the core-seconds to draw from."""


def shared_node(seed: int, jobs: int) -> World:
    """Return 3 or 10 one-thread jobs on a node of one CPU; seed 0 stands for the measured jobs."""
    random = Random(seed)
    within, durations = _LENGTHS[jobs]
    times = [0.0, *sorted(random.uniform(0, within) for _ in range(jobs - 2)), float(within)]
    drawn = [(at, random.choice(durations) * random.uniform(0.8, 1.25)) for at in times]
    work = drawn if seed else _MEASURED[jobs]
    specs = [thread(f"job-{number}", takes) for number, (_, takes) in enumerate(work)]
    arrivals = [float(at) for at, _ in work]
    return World({"node-0": NodeSize(1000)}, tuple(map(arriving, specs, arrivals)))


def thread(name: str, takes: float) -> JobSpec:
    """Return a job of one pod that takes this many core-seconds."""
    spec = JobSpec(name, PYTORCH, Style.GANG, 0.0, 0, _THREAD, 0, leaders=1, resize="cpu")
    steps = round(takes / _THREAD.work)
    return replace(spec, steps=steps, cpu=20, limit=0, starts=1.0, meets=1.0, prints=2.0)


_THREAD = Pace(0.1, 0.0, 0.0)


def of_class(name: str, kind: JobClass, *, trains: str) -> JobSpec:
    """Return a job with the duration of its class at the requested size."""
    pace, requested = kind.pace, kind.workers
    bounds = None if kind.style is Style.GANG else (max(1, requested // 4), 2 * requested)
    # Steps of about a second, so that the log shows them as real jobs do.
    steps = max(20, round(kind.seconds))
    scale = kind.seconds / steps / pace.seconds(requested)
    pace = Pace(pace.work * scale, pace.fixed * scale, pace.each * scale)
    servers, leaders = int(kind.style is Style.SERVERS), int(kind.style is Style.GANG)
    spec = JobSpec(
        name,
        TENSORFLOW if servers else PYTORCH,
        kind.style,
        0.0,
        requested - leaders,
        pace,
        steps,
        servers=servers,
        leaders=leaders,
        bounds=bounds,
        trains=trains,
    )
    if kind.style is Style.SERVERS:
        return replace(spec, starts=13.0)
    saves = Saving.ON_REQUEST if kind.style is Style.TORCHRUN else Saving.NEVER
    return replace(spec, starts=5.0, meets=10.0, saving=saves, answers=3.0)


def lognormal(random: Random, mean: float, *, cv: float) -> float:
    """Draw a duration with a mean; `cv`: the coefficient of variation."""
    sigma = math.sqrt(math.log(1 + cv * cv))
    return random.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)


def spread_over(
    specs: Sequence[JobSpec],
    random: Random,
    *,
    load: float,
    nodes: int = _NODES,
    per_node: int = _PER_NODE,
) -> World:
    """Return a world with these jobs; while they arrive, their work is `load` of all slots."""
    work = sum((spec.training + _START_SECONDS) * spec.pods for spec in specs)
    times = sorted(random.uniform(0, work / (nodes * per_node * load)) for _ in specs)
    sizes = {f"node-{number}": NodeSize(1000 * per_node) for number in range(nodes)}
    return World(sizes, tuple(map(arriving, specs, times)))


def arriving(spec: JobSpec, at: float) -> JobSpec:
    """Return a job that arrives at a time, rounded to a whole second."""
    return replace(spec, arrives=float(round(at)))


Draw = Callable[[int], World]

WORLDS: dict[str, Draw] = {
    "small": random_world,
    "stream": stream,
    "cpu-0.5": lambda seed: cluster(seed, load=0.5),
    "cpu-0.8": lambda seed: cluster(seed, load=0.8),
    "cpu-1.2": lambda seed: cluster(seed, load=1.2),
    "cpu-0.8-varied": lambda seed: cluster(seed, load=0.8, cv=2.5),
    "gpu-0.5": lambda seed: gpus(seed, load=0.5),
    "gpu-1": lambda seed: gpus(seed, load=1.0),
    "node-3": lambda seed: shared_node(seed, 3),
    "node-10": lambda seed: shared_node(seed, 10),
}
"""The worlds by name. The number is the load: the work that arrives / the capacity of all slots."""
