"""The jobs that share the node: what they train, for how long, and when they come.

A `Split` job has a parameter server and a worker with good or bad CPU limits. One
worker trains asynchronously on one node: a step needs CPU of both pods, one after the other, so the
pod with too little CPU decides how long the step takes. Both may use `_BOTH` of the node together.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from e2e.bench.companion.site import REQUEST
from e2e.harness.jobs import job, template
from e2e.testbed.images import TENSORFLOW_IMAGE, TRAINING_IMAGE

Object = dict[str, Any]
SEED = 1
_MEMORY = "64Mi"
_START_CPU = 2.0
"""CPU seconds that a job takes until its first step."""
_STEADY = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
"""Has the C library keep what a step frees for the next one. Left to itself it does so in one run
and not in another, and a step of the PyTorch cnn takes 34 ms in the first and 48 in the second."""
StepCpu = Mapping[str, float]
"""CPU seconds of a step on this machine, by the name of the program."""
_BOTH = 900
"""Millicores, of a node of 1000."""
_SPLIT_STEP_CPU = {"PS": 0.0070, "Worker": 0.0095}
"""CPU seconds of a step, by type, measured on a core of an AMD EPYC."""
_SPLIT_MEMORY = "256Mi"


@dataclass(frozen=True, slots=True)
class Program:
    """One way to call `e2e/jobs/converge.py`.

    `pace`: the learning rate times the number of steps, so that the loss has fallen after the same
    part of the work, however long it is.
    """

    framework: str
    model: str
    batch: int
    pace: float

    @property
    def name(self) -> str:
        """What its jobs are named after."""
        return f"{self.framework}-{self.model}"

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
    """A job that comes after so many seconds; it ends when `pod` ends."""

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
    """Jobs as they come. `lasts`: about how many seconds they take."""

    name: str
    arrivals: tuple[Arriving, ...]
    lasts: float = field(repr=False)

    @property
    def title(self) -> str:
        """How a table names it."""
        last = max(arrival.seconds for arrival in self.arrivals)
        count = len(self.arrivals)
        return f"{count} jobs within {last:.0f} s"


PROGRAMS = (
    Program("torch", "gru", batch=256, pace=0.5),
    Program("torch", "cnn", batch=512, pace=0.14),
    Program("tf", "cnn", batch=1536, pace=0.24),
    Program("torch", "vae", batch=512, pace=0.16),
    Program("tf", "vae", batch=8192, pace=0.2),
)


def schedule(
    name: str,
    count: int,
    *,
    works: Sequence[float],
    within: float,
    step_cpu: StepCpu,
    seed: int = SEED,
) -> Schedule:
    """Return jobs; each takes one of some `works`, in CPU seconds of this machine.

    The first comes at once, the last at the end. Those between come at random times, and which
    program and which work a job has is random too.
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
            f"{number}-{program.name}",
            program,
            round(work / step_cpu[program.name]),
        )
        for number, (seconds, program, work) in enumerate(zip(times, chosen, each, strict=True))
    )
    return Schedule(name, arrivals, lasts=sum(each) + count * _START_CPU)


def alone(*, work: float, step_cpu: StepCpu) -> Schedule:
    """Return one job that has the node for itself."""
    program = PROGRAMS[0]
    only = Arrival(0.0, program.name, program, round(work / step_cpu[program.name]))
    return Schedule("alone", (only,), lasts=work + _START_CPU)


def few_and_many(step_cpu: StepCpu, *, quick: bool) -> tuple[Schedule, Schedule]:
    """Return three jobs of equal work, where the last to come is the last to end, and ten."""
    if quick:
        return (
            schedule("three", 3, works=[36], within=25, step_cpu=step_cpu),
            schedule("ten", 10, works=[5, 8, 16], within=25, step_cpu=step_cpu),
        )
    return (
        schedule("three", 3, works=[110], within=80, step_cpu=step_cpu),
        schedule("ten", 10, works=[25, 40, 80], within=100, step_cpu=step_cpu),
    )


def one_of_each(steps: int) -> Schedule:
    """Return a job of each program, for so many steps."""
    arrivals = tuple(Arrival(0.0, program.name, program, steps) for program in PROGRAMS)
    return Schedule("one-of-each", arrivals, lasts=15.0)


@dataclass(frozen=True, slots=True)
class Split:
    """A job that comes at once; `server`: what the parameter server has of `_BOTH`, millicores."""

    name: str
    steps: int
    server: int
    seconds: float = 0.0
    kind: str = "TFJob"

    @property
    def pod(self) -> str:
        """The pod of the worker; the server never ends by itself."""
        return f"{self.name}-worker-0"

    @property
    def lasts(self) -> float:
        """About how long it takes if its limits stay, in seconds."""
        limits = {"PS": self.server, "Worker": _BOTH - self.server}
        slowest = max(1000 * cpu / limits[type_] for type_, cpu in _SPLIT_STEP_CPU.items())
        return self.steps * slowest

    def manifest(self) -> Object:
        """Return what is submitted: Burstable, its limits add up to `_BOTH`."""
        body = job(
            self.name, {"PS": 1, "Worker": 1}, kind=self.kind, policy={"cleanPodPolicy": "None"}
        )
        limits = {"PS": self.server, "Worker": _BOTH - self.server}
        for type_, limit in limits.items():
            pod = template(body, type_)["spec"]
            pod["terminationGracePeriodSeconds"] = 1  # a server would take all of it
            (container,) = pod["containers"]
            container |= {
                "image": TENSORFLOW_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["python3", "/jobs/train_tf.py", "--steps", str(self.steps)],
                "resources": {
                    "requests": {"cpu": REQUEST, "memory": _SPLIT_MEMORY},
                    "limits": {"cpu": f"{limit}m"},
                },
            }
        return body


def _split_schedule(name: str, *, steps: int, server: int) -> Schedule:
    split = Split(name, steps, server)
    return Schedule(name, (split,), lasts=split.lasts)


def split_schedules(part: float = 1.0) -> tuple[Schedule, ...]:
    """Return a well-split job and two badly split ones, with a part of their steps."""
    server = round(_BOTH * _SPLIT_STEP_CPU["PS"] / sum(_SPLIT_STEP_CPU.values()))
    return (
        _split_schedule("well-split", steps=round(10_000 * part), server=server),
        _split_schedule("server-starved", steps=round(3500 * part), server=100),
        _split_schedule("worker-starved", steps=round(3500 * part), server=_BOTH - 135),
    )
