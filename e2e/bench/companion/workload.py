"""The jobs that share the node: their programs, durations and arrivals.

A `Split` job has a parameter server and a worker with good or bad CPU limits. A single worker
trains asynchronously: a step needs CPU of both pods, one after the other, so the pod with too
little CPU decides the step time.
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
_START_CPU_SECONDS = 2.0
"""CPU seconds of a job before its first step."""
_STEADY = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
"""Make the C library keep the memory that a step frees, for the next step. By default it does so
only in some runs; with it a step of the PyTorch cnn takes 34 ms, without it 48."""
StepCpu = Mapping[str, float]
"""CPU seconds of a step on this machine, by the name of the program."""
_SPLIT_MILLICORES = 900
"""The CPU that both pods of a `Split` job may use together, of a node of 1000 millicores."""
_SPLIT_STEP_CPU = {"PS": 0.0070, "Worker": 0.0095}
"""CPU seconds of a step, by replica type, measured on a core of an AMD EPYC."""
_SPLIT_MEMORY = "256Mi"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of jobs: options of `e2e/jobs/converge.py`.

    `pace`: the learning rate times the number of steps, so that for any number of steps
    the loss has fallen equally far after the same fraction of the work.
    """

    framework: str
    model: str
    batch: int
    pace: float

    @property
    def name(self) -> str:
        return f"{self.framework}-{self.model}"

    @property
    def kind(self) -> str:
        return "PyTorchJob" if self.framework == "torch" else "TFJob"

    @property
    def type_(self) -> str:
        return "Master" if self.framework == "torch" else "Worker"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that is submitted after `seconds`."""

    seconds: float
    name: str
    program: Program
    steps: int

    @property
    def kind(self) -> str:
        return self.program.kind

    @property
    def pod(self) -> str:
        return f"{self.name}-{self.program.type_.lower()}-0"

    def manifest(self) -> Object:
        """Return its manifest: Burstable, one thread, without a CPU limit."""
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


class ScheduledJob(Protocol):
    """A job that is submitted after `seconds`, and ends when `pod` ends."""

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
    """Jobs with their arrivals. `lasts`: the approximate duration in seconds."""

    name: str
    arrivals: tuple[ScheduledJob, ...]
    lasts: float = field(repr=False)

    @property
    def title(self) -> str:
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
    cpu_choices: Sequence[float],
    within: float,
    step_cpu: StepCpu,
    seed: int = SEED,
) -> Schedule:
    """Return `count` jobs that arrive within `within` seconds.

    The first arrives at once, the last at the end, the others at random times. The program of a job
    and its work, one of the `cpu_choices` in CPU seconds of this machine, are random too.
    """
    draw = random.Random(seed)
    times = [0.0, *sorted(round(draw.uniform(0, within)) for _ in range(count - 2)), within]
    chosen = [PROGRAMS[number % len(PROGRAMS)] for number in range(count)]
    draw.shuffle(chosen)
    works = [cpu_choices[number % len(cpu_choices)] for number in range(count)]
    draw.shuffle(works)
    arrivals = tuple(
        Arrival(seconds, f"{number}-{program.name}", program, round(work / step_cpu[program.name]))
        for number, (seconds, program, work) in enumerate(zip(times, chosen, works, strict=True))
    )
    return Schedule(name, arrivals, lasts=sum(works) + count * _START_CPU_SECONDS)


def alone(*, work: float, step_cpu: StepCpu) -> Schedule:
    program = PROGRAMS[0]
    only = Arrival(0.0, program.name, program, round(work / step_cpu[program.name]))
    return Schedule("alone", (only,), lasts=work + _START_CPU_SECONDS)


def few_and_many(step_cpu: StepCpu, *, quick: bool) -> tuple[Schedule, Schedule]:
    """Return three jobs of equal work, where the last to arrive ends last, and ten jobs."""
    if quick:
        return (
            schedule("three", 3, cpu_choices=[36], within=25, step_cpu=step_cpu),
            schedule("ten", 10, cpu_choices=[5, 8, 16], within=25, step_cpu=step_cpu),
        )
    return (
        schedule("three", 3, cpu_choices=[110], within=80, step_cpu=step_cpu),
        schedule("ten", 10, cpu_choices=[25, 40, 80], within=100, step_cpu=step_cpu),
    )


def one_of_each(steps: int) -> Schedule:
    """Return a job of each program, all with the same number of steps."""
    arrivals = tuple(Arrival(0.0, program.name, program, steps) for program in PROGRAMS)
    return Schedule("one-of-each", arrivals, lasts=15.0)


@dataclass(frozen=True, slots=True)
class Split:
    """A job submitted at once. `server`: the millicores of `_SPLIT_MILLICORES` for its server."""

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
        limits = {"PS": self.server, "Worker": _SPLIT_MILLICORES - self.server}
        slowest = max(1000 * cpu / limits[type_] for type_, cpu in _SPLIT_STEP_CPU.items())
        return self.steps * slowest

    def manifest(self) -> Object:
        """Return its manifest: Burstable, with limits that add up to `_SPLIT_MILLICORES`."""
        body = job(
            self.name, {"PS": 1, "Worker": 1}, kind=self.kind, policy={"cleanPodPolicy": "None"}
        )
        limits = {"PS": self.server, "Worker": _SPLIT_MILLICORES - self.server}
        for type_, limit in limits.items():
            pod = template(body, type_)["spec"]
            pod["terminationGracePeriodSeconds"] = 1  # a server never ends before it
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


def split_schedules(fraction: float = 1.0) -> tuple[Schedule, ...]:
    """Return a well-split job and two badly split jobs, with a fraction of their steps."""
    server = round(_SPLIT_MILLICORES * _SPLIT_STEP_CPU["PS"] / sum(_SPLIT_STEP_CPU.values()))
    return (
        _split_schedule("well-split", steps=round(10_000 * fraction), server=server),
        _split_schedule("server-starved", steps=round(3500 * fraction), server=100),
        _split_schedule(
            "worker-starved", steps=round(3500 * fraction), server=_SPLIT_MILLICORES - 135
        ),
    )
