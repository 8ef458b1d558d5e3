"""All arms in all worlds, compared as `kfext simulate` does. One core.

The figures are of the model, so they depend on no machine.
"""

from collections.abc import Callable

from e2e.bench.model.carrier import Carrier
from e2e.bench.model.flowcon import FlowCon, FlowCon2
from e2e.bench.model.mapped import Mapped
from e2e.bench.model.specon import SpeCon
from e2e.bench.model.worlds import DRAGONS, THREADS, WORLDS
from e2e.bench.report import table
from e2e.testbed.progress import say
from kfext.cli.simulate import SHOWN
from kfext.model.parameters import QueueOrder
from kfext.sim.arms import ARMS as SHIPPED
from kfext.sim.arms import GANG, KFEXT, PLAIN, Arm, companion
from kfext.sim.cluster import Cluster, Scheduler
from kfext.sim.compare import compare

_FIRST = 5000
"""The first seed: no seed from here on was used to choose a rule of kfext."""
_FEW = 3
_SEEDS = {
    "small": 300,
    "stream": 20,
    "cpu-0.8": 10,
    "node-3": 30,
    "node-10": 20,
    **dict.fromkeys(THREADS, 10),
}
"""The worlds with more than _FEW seeds."""
_QUICK = ("small", "stream", "dragon-0.7", "threads-20")


ARMS: dict[str, Arm] = {
    **SHIPPED,
    "gang-shortest": companion(order=QueueOrder.SHORTEST),
    "dragon": lambda world, luck: Cluster(world, luck, scheduler=Carrier),
}


def _alone(scheduler: Callable[[Cluster], Scheduler]) -> Arm:
    """Return a scheduler in place of kfext, without elastic jobs."""
    return lambda world, luck: Cluster(world.rigid(), luck, scheduler=scheduler)


_MAP = "map"
THREAD_ARMS: dict[str, Arm] = {
    _MAP: _alone(Mapped),
    PLAIN: SHIPPED[PLAIN],
    GANG: SHIPPED[GANG],
    KFEXT: SHIPPED[KFEXT],
    "flowcon": _alone(FlowCon),
    "flowcon-2": _alone(FlowCon2),
    "specon": _alone(SpeCon),
}
"""For jobs of one thread. `map`: plain Kubernetes with jobs on nodes that are drawn."""


def measure(*, quick: bool) -> str:
    """Return a table for each world, with the columns of `kfext simulate`."""
    tables = []
    for name in _QUICK if quick else WORLDS:
        count = 1 if quick else _SEEDS.get(name, _FEW)
        seeds = range(_FIRST, _FIRST + count)
        # DRAGON was published against plain Kubernetes, SpeCon with all jobs on the same nodes.
        against = PLAIN if name in DRAGONS else _MAP if name in THREADS else GANG
        arms = THREAD_ARMS if name in THREADS else ARMS
        say(f"  world {name}: {count} seeds")
        rows = compare(WORLDS[name], arms, seeds, against=against)
        cells = [[cell(row) for cell in SHOWN.values()] for row in rows]
        title = f"World {name}, seeds {seeds[0]} to {seeds[-1]}, against {against}"
        tables.append(table(title, [*SHOWN], cells))
    return "\n\n".join(tables)
