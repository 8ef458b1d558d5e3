"""The jobs that share the node: what they train, for how long, and when they come."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from e2e.bench.companion.pods import REQUEST
from e2e.harness.jobs import job, template
from e2e.testbed.images import TENSORFLOW_IMAGE, TRAINING_IMAGE

Object = dict[str, Any]
SEED = 1
_MEMORY = "64Mi"
_START_CPU = 2.0
"""CPU seconds that a job takes until its first step."""
_STEADY = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
"""Has the C library keep what a step frees for the next one. Left to itself it does so in one run
and not in another, and a step of the PyTorch cnn takes 34 ms in the one and 48 in the other."""


@dataclass(frozen=True, slots=True)
class Program:
    """One way to call `e2e/jobs/converge.py`.

    `pace`: the learning rate times the number of steps, so that the loss has fallen after the same
    part of the work, however long it is. `step_cpu`: CPU seconds of a step.
    """

    framework: str
    model: str
    batch: int
    pace: float
    step_cpu: float

    @property
    def kind(self) -> str:
        """The kind of its job."""
        return "PyTorchJob" if self.framework == "torch" else "TFJob"

    @property
    def type_(self) -> str:
        """The type of its only replica."""
        return "Master" if self.framework == "torch" else "Worker"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that comes after so many seconds."""

    seconds: float
    name: str
    program: Program
    steps: int

    @property
    def kind(self) -> str:
        """Its kind."""
        return self.program.kind

    @property
    def pod(self) -> str:
        """The name of its only pod."""
        return f"{self.name}-{self.program.type_.lower()}-0"

    def manifest(self) -> Object:
        """Return what is submitted: Burstable, one thread, without a CPU limit."""
        program = self.program
        body = job(
            self.name, {program.type_: 1}, kind=program.kind, policy={"cleanPodPolicy": "None"}
        )
        arguments = {
            "framework": program.framework,
            "model": program.model,
            "batch": program.batch,
            "steps": self.steps,
            "rate": f"{program.pace / self.steps:.3g}",
        }
        words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        pod = template(body, program.type_)["spec"]
        (container,) = pod["containers"]
        container |= {
            "image": TRAINING_IMAGE if program.framework == "torch" else TENSORFLOW_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "/jobs/converge.py", *words],
            "env": [{"name": name, "value": value} for name, value in _STEADY.items()],
            "resources": {"requests": {"cpu": REQUEST, "memory": _MEMORY}},
        }
        return body


class Arriving(Protocol):
    """A job that comes after so many seconds; `pod` is the one whose end is the job's."""

    @property
    def seconds(self) -> float: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def pod(self) -> str: ...
    def manifest(self) -> Object: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """Jobs as they come. `interval`: of whoever acts on them; `lasts`: about how long; seconds."""

    name: str
    arrivals: tuple[Arriving, ...]
    interval: float
    lasts: float = field(repr=False)

    @property
    def title(self) -> str:
        """How a table names it."""
        last = max(one.seconds for one in self.arrivals)
        count = len(self.arrivals)
        return f"{count} jobs within {last:.0f} s, interval {self.interval:g} s"


PROGRAMS = (
    Program("torch", "gru", batch=256, pace=0.5, step_cpu=0.047),
    Program("torch", "cnn", batch=512, pace=0.14, step_cpu=0.029),
    Program("tf", "cnn", batch=1536, pace=0.24, step_cpu=0.037),
    Program("torch", "vae", batch=512, pace=0.16, step_cpu=0.039),
    Program("tf", "vae", batch=8192, pace=0.2, step_cpu=0.032),
)


def schedule(
    name: str,
    count: int,
    *,
    works: Sequence[float],
    within: float,
    interval: float,
    seed: int = SEED,
) -> Schedule:
    """Return jobs of which each takes one of some `works`, in CPU seconds.

    The first comes at once, the last at the end. Those between come at random times, and which
    program and which work is whose is random too.
    """
    chance = random.Random(seed)
    times = [0.0, *sorted(round(chance.uniform(0, within)) for _ in range(count - 2)), within]
    chosen = [PROGRAMS[number % len(PROGRAMS)] for number in range(count)]
    chance.shuffle(chosen)
    each = [works[number % len(works)] for number in range(count)]
    chance.shuffle(each)
    arrivals = tuple(
        Arrival(
            seconds,
            f"{number}-{program.framework}-{program.model}",
            program,
            round(work / program.step_cpu),
        )
        for number, (seconds, program, work) in enumerate(zip(times, chosen, each, strict=True))
    )
    return Schedule(name, arrivals, interval, lasts=sum(each) + count * _START_CPU)


def alone(*, work: float) -> Schedule:
    """Return one job that has the node for itself."""
    program = PROGRAMS[0]
    only = Arrival(
        0.0, f"{program.framework}-{program.model}", program, round(work / program.step_cpu)
    )
    return Schedule("alone", (only,), interval=30.0, lasts=work + _START_CPU)


FULL = (
    schedule("three", 3, works=[110], within=80, interval=30),
    schedule("ten", 10, works=[25, 40, 80], within=100, interval=30),
)
"""Three jobs of equal work, of which the last to come is the last to end, and ten unequal ones."""
QUICK = (
    schedule("three", 3, works=[36], within=25, interval=10),
    schedule("ten", 10, works=[5, 8, 16], within=25, interval=10),
)
WARM = Schedule(
    "warm",
    tuple(Arrival(0.0, f"{one.framework}-{one.model}", one, steps=3) for one in PROGRAMS),
    interval=1.0,
    lasts=15.0,
)
