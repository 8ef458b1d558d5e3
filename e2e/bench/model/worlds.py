"""The shipped worlds, and jobs of the shape of DRAGON's."""

from dataclasses import replace
from functools import partial
from random import Random

from kfext.sim.cluster import World
from kfext.sim.jobs import TENSORFLOW, JobSpec, Saving, Style
from kfext.sim.worlds import WORLDS as SHIPPED
from kfext.sim.worlds import Draw, cluster, spread_over

_LOADS = (0.5, 0.7, 0.8, 0.9)


def server_jobs(seed: int, *, load: float) -> World:
    """Return TFJobs with a server that may have a quarter to twice their workers.

    Source of the shape: Lin et al., DRAGON, CLOSER 2019. Lengths and sizes are the shipped ones.
    """
    jobs = [_with_server(spec) for spec in cluster(seed, load=load).jobs]
    return spread_over(jobs, Random(seed), load=load)


def _with_server(spec: JobSpec) -> JobSpec:
    asked = spec.workers + spec.leaders
    made = replace(spec, kind=TENSORFLOW, style=Style.SERVERS, workers=asked, leaders=0, servers=1)
    bounds = (max(1, asked // 4), 2 * asked)
    return replace(made, bounds=bounds, starts=13.0, saving=Saving.NEVER)


WORLDS: dict[str, Draw] = {
    **SHIPPED,
    **{f"dragon-{load}": partial(server_jobs, load=load) for load in _LOADS},
}
