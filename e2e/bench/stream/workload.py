"""The jobs of the streams: their programs, sizes and arrivals.

Nine jobs of three forms arrive within half of the time. The other stream has the shape of DRAGON's
workload: many jobs, each with a parameter server, at a load at which jobs wait.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient

from e2e.harness.elastic_jobs import tf_body, torch_body
from e2e.harness.training import pytorch_job
from kfext.sim.jobs import TENSORFLOW, JobSpec
from kfext.sim.worlds import STREAM, lognormal

Object = dict[str, Any]
SEED = 1
MILLICORES = 170
"""The CPU of a pod; two fit a node of 350m."""
_CPU = f"{MILLICORES}m"
_ARRIVING = 0.5
"""The part of a stream's time in which jobs arrive."""
_FEWEST_STEPS = 20
_BATCH = {"PyTorchJob": 4096, "TFJob": 2048}
"""Large enough that a step is mostly computation: for all workers together, or for each."""
_KEPT_EVERY = {"PyTorchJob": 50, "TFJob": 300}


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A job; its numbers count training pods, and a TFJob has one parameter server in addition.

    `steps`: in a stream of ten minutes. `least`, `most`: equal to `asked` for a rigid job.
    """

    name: str
    kind: str
    least: int
    asked: int
    most: int
    steps: int

    @property
    def elastic(self) -> bool:
        return self.least < self.most

    @property
    def servers(self) -> int:
        """The number of parameter servers, which are not training pods."""
        return int(self.kind == "TFJob")

    def manifest(self, *, minutes: float, folder: Path) -> Object:
        """Return its manifest; an elastic job has its checkpoints in a folder of its own."""
        steps = max(_FEWEST_STEPS, round(self.steps * minutes / 10))
        if not self.elastic:
            return self._rigid(steps)
        make = torch_body if self.kind == "PyTorchJob" else tf_body
        options = {"steps": steps, "batch": _BATCH[self.kind], "every": _KEPT_EVERY[self.kind]}
        words = [word for name, value in options.items() for word in (f"--{name}", f"{value}")]
        sizes, own = f"{self.least}-{self.most}", folder / self.name
        return make(self.name, self.asked, cpu=_CPU, folder=own, sizes=sizes, arguments=words)

    def _rigid(self, steps: int) -> Object:
        arguments = ("--model", "cnn", "--steps", str(steps))
        job = pytorch_job(self.name, workers=self.asked - 1, cpu=_CPU, arguments=arguments)
        body: Object = ApiClient().sanitize_for_serialization(job)
        body["metadata"].setdefault("annotations", {})
        return body


def _of(spec: JobSpec) -> StreamJob:
    """Return a job of the model as a real job."""
    size = spec.workers + spec.leaders
    least, most = spec.bounds or (size, size)
    return StreamJob(spec.name, spec.kind, least, size, most, spec.steps)


JOBS = tuple(map(_of, STREAM))
FEW = tuple(
    job
    for job in JOBS
    if job.name in {"elastic-wide", "elastic-pair", "server-small", "rigid-pair-one", "rigid-four"}
)
SERVER_LOAD = 0.85
"""The load of the stream of jobs with servers: its work / the capacity of all nodes."""
_SLOTS = 8
"""The number of pods that fit the nodes."""
_COUNT, _ASKED = 12, (1, 1, 2, 2, 2, 4)
_MEAN_SECONDS, _SHORTEST, _LONGEST = 80.0, 25.0, 320.0
"""The training times at the requested size: lognormal, with the mean as deviation."""
_STEP_SECONDS = 0.0586
"""The time of a step of one worker, measured with `MILLICORES`."""
_START_SECONDS = 13.0
"""From the pods of a job to its first step."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and the time of its submission, in seconds since the start."""

    seconds: float
    job: StreamJob


def arrivals(jobs: Sequence[StreamJob], *, minutes: float, seed: int = SEED) -> list[Arrival]:
    """Return the jobs in a random order; the first arrives at once, the last half-way.

    Times are of a Poisson process, given its number of arrivals in that time.
    """
    chance = random.Random(seed)
    order = chance.sample(jobs, len(jobs))
    within = 60 * minutes * _ARRIVING
    times = [0.0, *sorted(round(chance.uniform(0, within), 1) for _ in jobs[1:])]
    return [Arrival(time, job) for time, job in zip(times, order, strict=True)]


def with_servers(*, minutes: float, seed: int = SEED) -> list[Arrival]:
    """Return jobs of the shape of DRAGON's, with random arrivals at `SERVER_LOAD`.

    A job may have a quarter to twice its requested workers. `minutes`: 10, or another length that
    scales all jobs. Source of the shape: Lin et al., DRAGON, CLOSER 2019; lengths and sizes are
    smaller.
    """
    chance, scale = random.Random(seed), minutes / 10
    jobs, work = [], 0.0
    for number in range(_COUNT):
        size = chance.choice(_ASKED)
        drawn = lognormal(chance, _MEAN_SECONDS, cv=1.0)
        seconds = min(max(drawn, _SHORTEST), _LONGEST)
        sizes = (max(1, size // 4), size, min(2 * size, _SLOTS - 1))
        steps = round(seconds * size / _STEP_SECONDS)
        jobs.append(StreamJob(f"server-{number}", TENSORFLOW, *sizes, steps))
        work += (size + 1) * (seconds * scale + _START_SECONDS)
    within = work / (_SLOTS * SERVER_LOAD)
    times = [0.0, *sorted(round(chance.uniform(0, within), 1) for _ in jobs[1:])]
    return [Arrival(time, job) for time, job in zip(times, jobs, strict=True)]
