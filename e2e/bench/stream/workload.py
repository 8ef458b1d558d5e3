"""The jobs of the streams: their programs, sizes and arrivals.

In the first stream, nine jobs of three forms arrive within half of the time. The second has the
shape of DRAGON's workload: many jobs, each with a parameter server, at a load at which jobs wait.
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
_ARRIVAL_FRACTION = 0.5
"""The fraction of a stream's time in which jobs arrive."""
_MIN_STEPS = 20
_BATCH = {"PyTorchJob": 4096, "TFJob": 2048}
"""The batch of all workers of a PyTorchJob, or of each worker of a TFJob; so large that a step is
mostly computation."""
_CHECKPOINT_STEPS = {"PyTorchJob": 50, "TFJob": 300}


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A job. `asked`: the requested number of training pods; `least`, `most`: its range.

    The three are equal for a rigid job. A TFJob has a parameter server in addition. `steps`: for a
    stream of ten minutes.
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
        return int(self.kind == "TFJob")

    def manifest(self, *, minutes: float, folder: Path) -> Object:
        """Return its manifest; an elastic job has its checkpoints in a folder of its own."""
        steps = max(_MIN_STEPS, round(self.steps * minutes / 10))
        if not self.elastic:
            return self._rigid(steps)
        build = torch_body if self.kind == "PyTorchJob" else tf_body
        options = {
            "steps": steps,
            "batch": _BATCH[self.kind],
            "every": _CHECKPOINT_STEPS[self.kind],
        }
        words = [word for name, value in options.items() for word in (f"--{name}", f"{value}")]
        sizes, job_folder = f"{self.least}-{self.most}", folder / self.name
        return build(
            self.name, self.asked, cpu=_CPU, folder=job_folder, sizes=sizes, arguments=words
        )

    def _rigid(self, steps: int) -> Object:
        arguments = ("--model", "cnn", "--steps", str(steps))
        job = pytorch_job(self.name, workers=self.asked - 1, cpu=_CPU, arguments=arguments)
        body: Object = ApiClient().sanitize_for_serialization(job)
        body["metadata"].setdefault("annotations", {})
        return body


def _real_job(spec: JobSpec) -> StreamJob:
    size = spec.workers + spec.leaders
    least, most = spec.bounds or (size, size)
    return StreamJob(spec.name, spec.kind, least, size, most, spec.steps)


JOBS = tuple(map(_real_job, STREAM))
FEW = tuple(
    job
    for job in JOBS
    if job.name in {"elastic-wide", "elastic-pair", "server-small", "rigid-pair-one", "rigid-four"}
)
SERVER_LOAD = 0.85
"""The load of the stream of jobs with servers: its work divided by the capacity of all nodes."""
_SLOTS = 8
"""The number of pods that fit the nodes."""
_SERVER_JOBS, _REQUESTED_SIZES = 12, (1, 1, 2, 2, 2, 4)
_MEAN_SECONDS, _SHORTEST, _LONGEST = 80.0, 25.0, 320.0
"""The training times at the requested size: lognormal, with a standard deviation like the mean."""
_STEP_SECONDS = 0.0586
"""The seconds of a step of one worker, measured with `MILLICORES`."""
_START_SECONDS = 13.0
"""From the start of a job's pods to its first step."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and the time of its submission, in seconds since the start."""

    seconds: float
    job: StreamJob


def arrivals(jobs: Sequence[StreamJob], *, minutes: float, seed: int = SEED) -> list[Arrival]:
    """Return the jobs in random order; the first arrives at once, the last by half of the time.

    Times follow a Poisson process, given its number of arrivals.
    """
    draw = random.Random(seed)
    order = draw.sample(jobs, len(jobs))
    within = 60 * minutes * _ARRIVAL_FRACTION
    times = [0.0, *sorted(round(draw.uniform(0, within), 1) for _ in jobs[1:])]
    return [Arrival(time, job) for time, job in zip(times, order, strict=True)]


def with_servers(*, minutes: float, seed: int = SEED) -> list[Arrival]:
    """Return jobs shaped like DRAGON's, with random arrivals at `SERVER_LOAD`.

    A job may have a quarter to twice its requested workers. The length of all jobs is proportional
    to `minutes`. Source of the shape: Lin et al., DRAGON, CLOSER 2019; lengths and sizes are
    smaller here.
    """
    draw, scale = random.Random(seed), minutes / 10
    jobs, work = [], 0.0
    for number in range(_SERVER_JOBS):
        size = draw.choice(_REQUESTED_SIZES)
        drawn = lognormal(draw, _MEAN_SECONDS, cv=1.0)
        seconds = min(max(drawn, _SHORTEST), _LONGEST)
        sizes = (max(1, size // 4), size, min(2 * size, _SLOTS - 1))
        steps = round(seconds * size / _STEP_SECONDS)
        jobs.append(StreamJob(f"server-{number}", TENSORFLOW, *sizes, steps))
        work += (size + 1) * (seconds * scale + _START_SECONDS)
    within = work / (_SLOTS * SERVER_LOAD)
    times = [0.0, *sorted(round(draw.uniform(0, within), 1) for _ in jobs[1:])]
    return [Arrival(time, job) for time, job in zip(times, jobs, strict=True)]
