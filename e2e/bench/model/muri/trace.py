"""The jobs and the cluster of Muri's published simulation.

Source: Zhao et al., Multi-Resource Interleaving for DL Training, SIGCOMM 2022, and its simulator
(github.com/Rivendile/Muri, simulator/). The files count milliseconds; here all times are seconds.
"""

from dataclasses import dataclass
from pathlib import Path

from e2e.bench.model.muri.files import Line, lines
from kfext.errors import UserError

_SLOWDOWN = 1.015
"""The iteration time of a job alone on its GPUs: the simulator's divided by the trace's."""
_SIZES = (1, 2, 4, 8, 16, 32)
_START_SECONDS = {
    "a2c": (38, 39, 39, 46, 46, 46),
    "bert": (10, 10, 10, 10, 10, 10),
    "dqn": (5, 5, 6, 6, 8, 8),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
}
"""Seconds of a start by model, for each number of GPUs in `_SIZES`, as profiled by the authors."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes with the same number of GPUs each."""

    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job that always uses the same number of GPUs.

    `submitted`: seconds since the start of the trace.
    `seconds`: the time of an iteration.
    `start`: seconds until the first iteration after a start.
    """

    name: str
    gpus: int
    submitted: float
    iterations: int
    seconds: float
    start: float


def read_cluster(path: Path) -> Cluster:
    """Return the cluster of a file such as n8g8.csv, with one switch. Raises UserError."""
    for line in lines(path, ("num_node_p_switch", "num_gpu_p_node")):
        nodes, gpus = line.value_of("num_node_p_switch", least=1), line.value_of("num_gpu_p_node")
        return Cluster(int(nodes), int(gpus))
    raise UserError(f"{path} has no line 2 with the nodes")


def read_jobs(path: Path) -> tuple[Job, ...]:
    """Return the jobs of a trace such as trace1.csv in order of arrival. Raises UserError."""
    columns = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")
    jobs = [_job(line) for line in lines(path, columns)]
    return tuple(sorted(jobs, key=lambda job: job.submitted))


def _job(line: Line) -> Job:
    model, gpus = line.cells["model_name"], int(line.value_of("num_gpu"))
    if model not in _START_SECONDS:
        raise UserError(
            f"{line.where}: model_name {model!r} is none of {', '.join(_START_SECONDS)}"
        )
    if gpus not in _SIZES:
        raise UserError(f"{line.where}: num_gpu {gpus} is none of {', '.join(map(str, _SIZES))}")
    return Job(
        line.cells["job_id"],
        gpus,
        submitted=line.value_of("submit_time") / 1000,
        iterations=int(line.value_of("iterations", least=1)),
        seconds=line.value_of("iteration_time") * _SLOWDOWN / 1000,
        start=_START_SECONDS[model][_SIZES.index(gpus)],
    )
