"""The jobs, their arrivals, and the arms that place them.

Half of the jobs are PyTorch with DDP, half TensorFlow with a parameter server.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kubernetes.client import ApiClient

from e2e.harness.jobs import specs
from e2e.harness.training import pytorch_job, tf_job
from e2e.testbed.controlplane import GREEDY

Object = dict[str, Any]
SEED = 1


class Job(Protocol):
    """A job; each of its `pods` requests `millicores`."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def pods(self) -> int: ...

    @property
    def millicores(self) -> int: ...

    @property
    def megabytes(self) -> float:
        """The size of the message that a computing pod sends, and receives, in a step."""

    @property
    def size(self) -> str:
        """Pods and their CPU, for a table."""

    @property
    def first_pod(self) -> str:
        """The pod that logs the totals at its end."""

    def manifest(self, *, minutes: float, scheduler: str, folder: Path) -> Object:
        """Return its manifest for a benchmark of `minutes`; its files are below `folder`."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A job. `steps`: for a 10-minute benchmark; they take about two minutes.

    `megabytes`: what a computing pod sends, and receives, in a step. All tasks of a TFJob share its
    steps, so a TFJob that starts without a worker has the same work.
    """

    name: str
    kind: str
    model: str
    megabytes: float
    pods: int
    millicores: int
    steps: int

    @property
    def first_pod(self) -> str:
        return f"{self.name}-{'master' if self.kind == 'PyTorchJob' else 'chief'}-0"

    @property
    def size(self) -> str:
        return f"{self.pods} x {self.millicores}m"

    def manifest(self, *, minutes: float, scheduler: str, folder: Path) -> Object:
        """Return its manifest, with steps in proportion to the minutes; the job writes no files."""
        steps = max(5, round(self.steps * minutes / 10))
        arguments = ("--model", self.model, "--steps", str(steps))
        cpu = f"{self.millicores}m"
        if self.kind == "PyTorchJob":
            created = pytorch_job(self.name, workers=self.pods - 1, cpu=cpu, arguments=arguments)
        else:
            shared = (*arguments, "--shared")
            created = tf_job(self.name, workers=self.pods - 2, cpu=cpu, arguments=shared)
        body: Object = ApiClient().sanitize_for_serialization(created)
        types = specs(body)
        for name in [name for name, spec in types.items() if spec["replicas"] == 0]:
            del types[name]
        for spec in types.values():
            spec["template"]["spec"]["schedulerName"] = scheduler
        return body


def _ddp(name: str, model: str, megabytes: float, size: tuple[int, int], steps: int) -> TrainingJob:
    return TrainingJob(name, "PyTorchJob", model, megabytes, *size, steps)


def _ps(name: str, model: str, megabytes: float, size: tuple[int, int], steps: int) -> TrainingJob:
    return TrainingJob(name, "TFJob", model, megabytes, *size, steps)


# From almost no communication to almost only communication, for each kind.
JOBS = (
    _ddp("ddp-cnn", "cnn", 0.1, (2, 150), 5200),
    _ddp("ddp-resnet-2", "resnet", 1.2, (2, 150), 620),
    _ddp("ddp-resnet-3", "resnet", 1.2, (3, 100), 350),
    _ddp("ddp-embedding", "embedding", 5.1, (2, 75), 900),
    _ddp("ddp-mlp-2", "mlp", 16.8, (2, 150), 145),
    _ddp("ddp-mlp-3", "mlp", 16.8, (3, 100), 90),
    _ps("ps-small-2", "small", 0.04, (2, 150), 5000),
    _ps("ps-small-3", "small", 0.04, (3, 100), 5400),
    _ps("ps-medium-2", "medium", 0.3, (2, 75), 1700),
    _ps("ps-medium-3", "medium", 0.3, (3, 100), 4700),
    _ps("ps-mlp-2", "mlp", 4.5, (2, 150), 1150),
    _ps("ps-mlp-3", "mlp", 4.5, (3, 100), 1260),
)
# Of each kind, a job with much and a job with little communication.
FEW = tuple(job for job in JOBS if job.name in ("ddp-cnn", "ddp-mlp-3", "ps-small-3", "ps-mlp-3"))


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and the time of its submission, in seconds since the start."""

    seconds: float
    job: Job


def arrivals(jobs: Sequence[Job], *, seconds: float, seed: int = SEED) -> list[Arrival]:
    """Return the jobs in random order with arrivals within `seconds`; the first arrives at once.

    Times follow a Poisson process, given its number of arrivals.
    """
    draw = random.Random(seed)
    order = draw.sample(jobs, len(jobs))
    times = [0.0, *sorted(draw.uniform(0, seconds) for _ in jobs[1:])]
    return [Arrival(time, job) for time, job in zip(times, order, strict=True)]


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to place pods. `scale`: kfext's `scale` policy; None means no policy."""

    name: str
    title: str
    scheduler: str = "default-scheduler"
    managed: bool = False
    scale: Mapping[str, Any] | None = None


PLAIN = Arm("plain", "plain Kubernetes")
GREEDILY = Arm("greedy", "greedy (MostAllocated)", scheduler=GREEDY)
KFEXT = Arm("kfext", "kfext", managed=True)
ARMS = (PLAIN, GREEDILY, KFEXT)
