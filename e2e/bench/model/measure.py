"""Benchmark: kfext and rebuilt schedulers in simulated worlds, compared as in `kfext simulate`.

All results are simulated, so they do not depend on the machine. Each run is stored at its end: an
interrupted benchmark continues, unless kfext or the model has changed. The arms of each world were
chosen before any result was known.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from statistics import fmean

from e2e.bench.model.ablations import ARMS as ABLATIONS
from e2e.bench.model.ablations import TRUE, TRUE_SHORTEST
from e2e.bench.model.bound import lower_bound
from e2e.bench.model.carrier import Carrier
from e2e.bench.model.flowcon import FlowCon, FlowCon2
from e2e.bench.model.mapped import Mapped
from e2e.bench.model.runs import Runs
from e2e.bench.model.specon import SpeCon
from e2e.bench.model.worlds import DRAGONS, THREADS, WORLDS
from e2e.bench.report import table
from e2e.testbed.progress import say
from kfext.cli.simulate import SHOWN
from kfext.sim.arms import ARMS as SHIPPED
from kfext.sim.arms import GANG, KFEXT, PLAIN, Arm
from kfext.sim.cluster import Cluster, Scheduler
from kfext.sim.compare import Row, compare

_FIRST_SEED = 20_000
"""The first seed; no rule of kfext was chosen with this seed or a later one."""
_SEEDS = {"small": 300, "stream": 100, "node-3": 40, "gpu-0.5": 10, "gpu-1": 10}
_DEFAULT_SEEDS = 20
_MODULES = ("ablations", "carrier", "dragon", "flowcon", "mapped", "specon", "worlds")
"""The modules of this folder on which a run depends, beside kfext."""
_QUICK = ("small", "stream", "dragon-0.7", "threads-20")
MAP, DRAGON = "map", "dragon"


def _rigid_under(scheduler: Callable[[Cluster], Scheduler]) -> Arm:
    """Return an arm with a scheduler in place of kfext, and without elastic jobs."""
    return lambda world, luck: Cluster(world.rigid(), luck, scheduler=scheduler)


ARMS: Mapping[str, Arm] = {
    **SHIPPED,
    **ABLATIONS,
    DRAGON: lambda world, luck: Cluster(world, luck, scheduler=Carrier),
    MAP: _rigid_under(Mapped),
    "flowcon": _rigid_under(FlowCon),
    "flowcon-2": _rigid_under(FlowCon2),
    "specon": _rigid_under(SpeCon),
}
"""`map`: plain Kubernetes with jobs on random nodes."""
_GENERAL_ARMS = (PLAIN, GANG, "gang-shortest", KFEXT, "kfext-shortest", TRUE, TRUE_SHORTEST)
_MORE_ARMS: Mapping[str, tuple[str, ...]] = {
    "small": ("short starts by wait", "donors give all"),
    "stream": ("short starts by wait", "no backfill by estimate", DRAGON),
    "cpu-0.5": ("no growth",),
    "cpu-0.8": ("gang, no backfill by estimate", "no growth", "no guard", "short starts by wait"),
    "cpu-1.2": ("no growth", "no guard", "unknown lengths 300 s", "donors give all"),
    "gpu-0.5": ("gang, no backfill by estimate", "no guard"),
    "gpu-1": ("gang, no backfill by estimate", "unknown lengths 300 s"),
    "spread-0.8": ("without-migrate",),
    **dict.fromkeys(DRAGONS, (DRAGON,)),
}
"""The arms of a world in addition to `_GENERAL_ARMS`."""
_THREAD_ARMS = (MAP, PLAIN, GANG, KFEXT, "flowcon", "flowcon-2", "specon")
_NODE_ARMS = (PLAIN, GANG, KFEXT, "only-resize")


def arms_of(world: str) -> tuple[str, ...]:
    if world in THREADS:
        return _THREAD_ARMS
    return _NODE_ARMS if world.startswith("node") else (*_GENERAL_ARMS, *_MORE_ARMS.get(world, ()))


def measure(*, quick: bool, worlds: Collection[str] = ()) -> str:
    """Return a table for each world, by default all, with the columns of `kfext simulate`."""
    chosen = [world for world in WORLDS if world in worlds] or (_QUICK if quick else WORLDS)
    return "\n\n".join(_table(world, quick=quick) for world in chosen)


def seeds_of(world: str, *, quick: bool) -> range:
    return range(_FIRST_SEED, _FIRST_SEED + (1 if quick else _SEEDS.get(world, _DEFAULT_SEEDS)))


def runs_of(world: str) -> Runs:
    return Runs(f"simulate-{world}", WORLDS[world], ARMS, _MODULES)


def _table(world: str, *, quick: bool) -> str:
    seeds = seeds_of(world, quick=quick)
    # SpeCon was published with all jobs on the same nodes.
    against = MAP if world in THREADS else GANG
    say(f"  world {world}: {len(seeds)} seeds")
    runs = runs_of(world)
    arms = list(dict.fromkeys((against, *arms_of(world))))
    rows = compare(arms, seeds, runs.find, against=against)
    title = f"World {world}, seeds {seeds[0]} to {seeds[-1]}, against {against}"
    tables = table(title, [*SHOWN, "MEAN OF SEEDS"], map(_cells, rows))
    if world in DRAGONS:  # DRAGON was published against plain Kubernetes
        against_plain = compare([KFEXT, DRAGON], seeds, runs.find, against=PLAIN)
        tables += "\n\n" + table(
            f"{title.rpartition(' ')[0]} {PLAIN}",
            [*SHOWN, "MEAN OF SEEDS"],
            map(_cells, against_plain),
        )
    return "\n\n".join((tables, *_bounds(world, rows, seeds)))


def _cells(row: Row) -> list[str]:
    return [*(cell(row) for cell in SHOWN.values()), f"{row.by_seed:+.1%}"]


def _bounds(world: str, rows: list[Row], seeds: range) -> Iterator[str]:
    """Yield a line with the lower bound of the mean, also as a change from the first row's mean."""
    if not world.startswith(("node", "threads")):
        least = fmean(lower_bound(WORLDS[world](seed)) for seed in seeds)
        yield f"Lower bound of the mean: {least:.0f} s, {least / rows[0].mean - 1:+.1%}."
