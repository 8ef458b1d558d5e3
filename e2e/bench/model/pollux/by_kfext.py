"""kfext on Pollux's workloads: its own decisions, in the model of `kfext simulate`.

kfext changes neither batches nor learning rates, so a job trains with its requested batch on any
number of GPUs. A GPU is a worker. A job starts within 30 s, the time of a restart there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from e2e.bench.model.pollux.application import Application, ceil
from e2e.bench.model.pollux.cluster import GPUS_OF_NODE, NODES, RESTART, Request
from e2e.bench.model.pollux.optimus import SINGLE
from kfext.sim.cluster import World
from kfext.sim.jobs import PYTORCH, JobSpec, Saving, Style
from kfext.sim.nodes import NodeSize

_CPU = 1000
"""Millicores of a worker, and of a node for each GPU."""
_MEETS = 10
_PRINTS, _LINES = 5.0, 100
"""The least seconds between two lines of a log, and the lines of a job."""


@dataclass(frozen=True)
class _Pace:
    """The seconds of a step by GPUs; no part of it depends on the CPU.

    A step is a second of training with the `requested` GPUs on as few nodes as possible.
    """

    application: Application
    batch: int
    requested: int
    work: float = 0.0

    def seconds(self, workers: int, *, apart: bool = False) -> float:
        """Return the seconds of a step; `apart`: whether the GPUs are on several nodes."""
        nodes = ceil(workers, GPUS_OF_NODE)
        least = ceil(self.requested, GPUS_OF_NODE)
        training = _training(self.application, self.batch, workers, max(nodes, 2 if apart else 1))
        return training / _training(self.application, self.batch, self.requested, least)


_training = cache(Application.training_seconds)


def world_of(requests: Iterable[Request]) -> World:
    """Return the jobs of a workload on Pollux's nodes.

    An elastic job may have a quarter to twice of its GPUs, and saves on kfext's request. All jobs
    are elastic, unless the published simulator limits them to one GPU.
    """
    size = NodeSize(cpu=_CPU * GPUS_OF_NODE, gpus=GPUS_OF_NODE)
    nodes = {f"node-{number}": size for number in range(NODES)}
    return World(nodes, tuple(_spec(request) for request in requests))


def _spec(request: Request) -> JobSpec:
    application, gpus = request.application, request.gpus
    seconds = _training(application, request.batch, gpus, ceil(gpus, GPUS_OF_NODE))
    bounds = None
    if application.name != SINGLE:
        most = min(2 * gpus, max(gpus, request.batch // application.least_local))
        bounds = (max(1, gpus // 4), most)
    leaders = int(bounds is None)
    return JobSpec(
        request.name,
        PYTORCH,
        Style.TORCHRUN if bounds else Style.GANG,
        float(request.submitted),
        gpus - leaders,
        _Pace(application, request.batch, gpus),
        max(1, round(seconds)),
        leaders=leaders,
        bounds=bounds,
        cpu=_CPU,
        uses=_CPU,
        gpus=1,
        trains=f"{application.name}-{request.batch}-{gpus}",
        prints=max(_PRINTS, seconds / _LINES),
        starts=float(RESTART - _MEETS),
        meets=float(_MEETS),
        saving=Saving.ON_REQUEST if bounds else Saving.NEVER,
    )
