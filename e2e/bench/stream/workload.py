"""The jobs of the streams: what they train, how large they may be, and when they come.

Nine jobs of three forms come within half of the time. The other stream has the shape of DRAGON's
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
"""Of a pod; a node of 350m holds two."""
_CPU = f"{MILLICORES}m"
_ARRIVING = 0.5
"""Of the time that the stream takes, the part in which jobs come."""
_FEWEST_STEPS = 20
_BATCH = {"PyTorchJob": 4096, "TFJob": 2048}
"""So large that a step is computation: of all workers together, or of each."""
_KEPT_EVERY = {"PyTorchJob": 50, "TFJob": 300}


@dataclass(frozen=True, slots=True)
class StreamJob:
    """One job; its numbers are training pods, beside which a TFJob has one parameter server.

    `steps`: of a stream of ten minutes. `least`, `most`: equal to `asked` for a rigid job.
    """

    name: str
    kind: str
    least: int
    asked: int
    most: int
    steps: int

    @property
    def elastic(self) -> bool:
        """Whether its size may change."""
        return self.least < self.most

    @property
    def servers(self) -> int:
        """Parameter servers, which are no training pods."""
        return int(self.kind == "TFJob")

    def manifest(self, *, minutes: float, folder: Path) -> Object:
        """Return what is submitted; an elastic job has its checkpoints in a folder of its own."""
        steps = max(_FEWEST_STEPS, round(self.steps * minutes / 10))
        if not self.elastic:
            return self._rigid(steps)
        make = torch_body if self.kind == "PyTorchJob" else tf_body
        given = {"steps": steps, "batch": _BATCH[self.kind], "every": _KEPT_EVERY[self.kind]}
        words = [word for name, value in given.items() for word in (f"--{name}", f"{value}")]
        sizes, place = f"{self.least}-{self.most}", folder / self.name
        return make(self.name, self.asked, cpu=_CPU, folder=place, sizes=sizes, arguments=words)

    def _rigid(self, steps: int) -> Object:
        arguments = ("--model", "cnn", "--steps", str(steps))
        made = pytorch_job(self.name, workers=self.asked - 1, cpu=_CPU, arguments=arguments)
        body: Object = ApiClient().sanitize_for_serialization(made)
        body["metadata"].setdefault("annotations", {})
        return body


def _of(spec: JobSpec) -> StreamJob:
    """Return a job of the model as a real one."""
    asked = spec.workers + spec.leaders
    least, most = spec.bounds or (asked, asked)
    return StreamJob(spec.name, spec.kind, least, asked, most, spec.steps)


JOBS = tuple(map(_of, STREAM))
FEW = tuple(
    job
    for job in JOBS
    if job.name in {"elastic-wide", "elastic-pair", "server-small", "rigid-pair-one", "rigid-four"}
)
SERVER_LOAD = 0.85
"""Of the stream of jobs with servers: the work that comes / what all nodes can do."""
_SLOTS = 8
"""Pods that the nodes hold together."""
_COUNT, _ASKED = 12, (1, 1, 2, 2, 2, 4)
_MEAN_SECONDS, _SHORTEST, _LONGEST = 80.0, 25.0, 320.0
"""Of training with the workers that a job asks for: lognormal, with the mean as their deviation."""
_STEP_SECONDS = 0.0586
"""Of a step of one worker, measured with `MILLICORES`."""
_START_SECONDS = 13.0
"""From the pods of a job to its first step."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and when it is submitted, in seconds since the start."""

    seconds: float
    job: StreamJob


def arrivals(jobs: Sequence[StreamJob], *, minutes: float, seed: int = SEED) -> list[Arrival]:
    """Return the jobs in a random order; the first one comes at once, the last one half-way.

    Times come from a Poisson process that is known to bring so many jobs in that time.
    """
    chance = random.Random(seed)
    order = chance.sample(jobs, len(jobs))
    within = 60 * minutes * _ARRIVING
    times = [0.0, *sorted(round(chance.uniform(0, within), 1) for _ in jobs[1:])]
    return [Arrival(time, job) for time, job in zip(times, order, strict=True)]


def with_servers(*, minutes: float, seed: int = SEED) -> list[Arrival]:
    """Return jobs of the shape of DRAGON's, which come evenly spread at `SERVER_LOAD`.

    A job may have a quarter to twice the workers that it asks for. `minutes`: 10, or another length
    of all. Source of the shape: Lin et al., DRAGON, CLOSER 2019; lengths and sizes are small ones.
    """
    chance, scale = random.Random(seed), minutes / 10
    jobs, work = [], 0.0
    for number in range(_COUNT):
        asked = chance.choice(_ASKED)
        drawn = lognormal(chance, _MEAN_SECONDS, cv=1.0)
        seconds = min(max(drawn, _SHORTEST), _LONGEST)
        sizes = (max(1, asked // 4), asked, min(2 * asked, _SLOTS - 1))
        steps = round(seconds * asked / _STEP_SECONDS)
        jobs.append(StreamJob(f"server-{number}", TENSORFLOW, *sizes, steps))
        work += (asked + 1) * (seconds * scale + _START_SECONDS)
    within = work / (_SLOTS * SERVER_LOAD)
    times = [0.0, *sorted(round(chance.uniform(0, within), 1) for _ in jobs[1:])]
    return [Arrival(time, job) for time, job in zip(times, jobs, strict=True)]
