"""Random jobs: what each of them asks for, how fast it really is, and how it saves its work."""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from kfext import names
from tests.builders import JobBuilder, job
from tests.unit.fluid.clock import EPOCH

Raw = dict[str, Any]

MOST_WORKERS = 6


class Style(StrEnum):
    """How the pods of a job find each other, and what becomes of it if one comes or goes.

    `TORCHRUN`: all workers meet anew and go on from the last checkpoint.
    `SERVERS`: the others go on, as what was learnt is with the parameter servers.
    `GANG`: it trains only as a whole, and begins again from the last checkpoint.
    """

    TORCHRUN = "torchrun"
    SERVERS = "servers"
    GANG = "gang"


class Saving(StrEnum):
    """How a job saves its work: every some steps, when it is asked to, or never."""

    PERIODIC = "periodic"
    ON_REQUEST = "on request"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a step takes with n workers: work/n + fixed + each * n, in seconds."""

    work: float
    fixed: float
    each: float

    def seconds(self, workers: int) -> float:
        return self.work / workers + self.fixed + self.each * workers


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as its user wrote it, and what nobody is shown of it. Times are in seconds.

    `workers`: the pods that train and are called Worker. `servers`: its parameter servers.
    `masters`: a Master beside the workers, 0 or 1.
    `bounds`: the annotation `elastic`, None without it.
    `cpu`: millicores that each pod requests. `uses`: those that it can use, at least as many.
    `starts`: from bound to Running. `meets`: from the last of its pods to the first step.
    `grace`: from the deletion of a pod to its end.
    `every`: the steps between two checkpoints, `answers`: from a request to the answer.
    `prints`: between two lines of its log.
    """

    name: str
    kind: str
    style: Style
    arrives: float
    workers: int
    pace: Pace
    steps: int
    servers: int = 0
    masters: int = 0
    bounds: tuple[int, int] | None = None
    cpu: int = 1000
    uses: int = 1000
    starts: float = 10.0
    meets: float = 8.0
    grace: float = 2.0
    saving: Saving = Saving.NEVER
    every: int = 50
    answers: float = 5.0
    prints: float = 5.0
    priority: str = ""
    namespace: str = "team"

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"

    @property
    def pods(self) -> int:
        return self.workers + self.servers + self.masters

    @property
    def trains_from(self) -> int:
        """The fewest workers with which it trains."""
        return self.bounds[0] if self.bounds and self.style is Style.TORCHRUN else 1

    def manifest(self) -> Raw:
        """Return the job as it is submitted."""
        made = job(self.kind, name=self.name, uid=self.uid).created(EPOCH + self.arrives)
        made.raw["metadata"]["namespace"] = self.namespace
        if self.masters:
            self._group(made, "Master", 1)
        self._group(made, "Worker", self.workers)
        if self.servers:
            self._group(made, "PS", self.servers)
        spec = made.raw["spec"]
        if self.style is Style.TORCHRUN:
            low, high = self.bounds or (self.workers, self.workers)
            policy = {"rdzvBackend": "c10d", "maxRestarts": 100}
            made.elastic(minReplicas=low, maxReplicas=high, **policy)
        if self.style is Style.SERVERS:
            spec["enableDynamicWorker"] = True
        if self.bounds is not None:
            made.annotated(names.ELASTIC, f"{self.bounds[0]}-{self.bounds[1]}")
        if self.priority:
            made.prioritized(self.priority)
        return made.raw

    def _group(self, made: JobBuilder, type_: str, replicas: int) -> None:
        made.group(type_, replicas, cpu=f"{self.cpu}m", cpu_limit=f"{self.uses}m")
        specs = made.raw["spec"][
            "pytorchReplicaSpecs" if made.raw["kind"] == "PyTorchJob" else "tfReplicaSpecs"
        ]
        specs[type_]["restartPolicy"] = "OnFailure"
        specs[type_]["template"]["spec"]["terminationGracePeriodSeconds"] = int(self.grace)
        container = specs[type_]["template"]["spec"]["containers"][0]
        container["name"] = "pytorch" if self.kind == "PyTorchJob" else "tensorflow"
        container["command"] = [
            "torchrun" if self.style is Style.TORCHRUN else "python",
            "train.py",
        ]


def random_job(random: Random, number: int, *, arrives: float) -> JobSpec:
    """Return a job; it is as fast as it is whichever pods it has, and never draws again."""
    kind, style = random.choice(_KINDS)
    workers = random.randint(1, MOST_WORKERS)
    pace = _random_pace(random)
    bounds = None
    if style is not Style.GANG or (kind == "TFJob" and random.random() < 0.3):
        bounds = (random.randint(1, workers), random.randint(workers, MOST_WORKERS + 2))
    cpu = random.choice([500, 500, 1000, 1000, 2000])
    masters = int(kind == "PyTorchJob" and style is Style.GANG and random.random() < 0.5)
    if masters:
        workers = max(1, workers - 1)
    steps = max(20, round(random.uniform(60, 420) / pace.seconds(workers + masters)))
    return JobSpec(
        name=f"job-{number}",
        kind=kind,
        style=style,
        arrives=arrives,
        workers=workers,
        pace=pace,
        steps=steps,
        servers=int(kind == "TFJob"),
        masters=masters,
        bounds=bounds,
        cpu=cpu,
        uses=cpu * random.choice([1, 1, 1, 1, 2]),
        starts=float(random.randint(5, 20)),
        meets=float(random.randint(5, 15)),
        grace=random.choice([2.0, 2.0, 2.0, 2.0, 30.0]),
        saving=random.choice(_SAVINGS),
        every=max(1, steps // random.randint(4, 40)),
        answers=float(random.randint(1, 20)),
        prints=random.choice([5.0, 10.0, 10.0]),
        priority=random.choice(["", "", "", "", "", "", "", "", "", "urgent"]),
    )


def _random_pace(random: Random) -> Pace:
    """Return how fast a job is; one in five has little use for more than a few workers."""
    alone = random.uniform(0.4, 2.0)
    if random.random() < 0.2:
        return Pace(alone, alone * random.uniform(0.3, 0.6), alone * random.uniform(0.05, 0.15))
    return Pace(alone, alone * random.uniform(0.0, 0.1), alone * random.uniform(0.001, 0.02))


_KINDS = (
    ("PyTorchJob", Style.TORCHRUN),
    ("PyTorchJob", Style.TORCHRUN),
    ("TFJob", Style.SERVERS),
    ("TFJob", Style.SERVERS),
    ("PyTorchJob", Style.GANG),
    ("TFJob", Style.GANG),
)
_SAVINGS = (Saving.PERIODIC, Saving.PERIODIC, Saving.ON_REQUEST, Saving.NEVER)
