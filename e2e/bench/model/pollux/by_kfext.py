"""kfext on Pollux's workloads, in the simulation of `kfext simulate`.

kfext changes neither batches nor learning rates, so a job trains with its requested batch on any
number of GPUs. Each GPU is a worker. A start takes 30 s, like a restart in Pollux's simulator.
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
"""The millicores of a worker, and of a node per GPU."""
_RENDEZVOUS_SECONDS = 10
_PRINTS, _LINES = 5.0, 100
"""The least seconds between two lines of a log, and the number of lines of a longer job."""


@dataclass(frozen=True)
class _Pace:
    """The seconds of a step by number of GPUs; they do not depend on the CPU.

    A step takes a second with the `requested` GPUs on as few nodes as possible.
    """

    application: Application
    batch: int
    requested: int
    work: float = 0.0

    def seconds(self, workers: int, *, apart: bool = False) -> float:
        """Return the seconds of a step; `apart`: whether the GPUs are on several nodes."""
        nodes = ceil(workers, GPUS_OF_NODE)
        fewest_nodes = ceil(self.requested, GPUS_OF_NODE)
        training = _training(self.application, self.batch, workers, max(nodes, 2 if apart else 1))
        return training / _training(self.application, self.batch, self.requested, fewest_nodes)


_training = cache(Application.training_seconds)


def world_of(requests: Iterable[Request]) -> World:
    """Return the jobs of a workload on Pollux's nodes.

    Jobs may have a quarter to twice their requested GPUs, and save on kfext's request; only jobs
    that the published simulator limits to one GPU are rigid.
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
        starts=float(RESTART - _RENDEZVOUS_SECONDS),
        meets=float(_RENDEZVOUS_SECONDS),
        saving=Saving.ON_REQUEST if bounds else Saving.NEVER,
    )
