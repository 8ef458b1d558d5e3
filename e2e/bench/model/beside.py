"""Tables of kfext beside published schedulers, with the same jobs, nodes and loads.

A published scheduler's times come from its own model; kfext decides in the model of `kfext
simulate`. Each row is compared with a reference row over all jobs, as in `kfext simulate`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from statistics import fmean

from e2e.bench.model.ablations import ARMS as ABLATIONS
from e2e.bench.model.runs import Runs
from e2e.bench.report import table
from kfext.cli.simulate import SHOWN
from kfext.sim.arms import ARMS as SHIPPED
from kfext.sim.arms import Arm
from kfext.sim.cluster import Ended, World
from kfext.sim.compare import Run, compare, luck_of, quantile

Published = Callable[[str, int], Mapping[str, float] | None]
"""Returns the seconds from the arrival to the end of each job, or None for an arm of kfext."""
_HEAD = (
    *("SCHEDULER", "MEAN s", "CHANGE", "95 %", "P99 s", "MAKESPAN s", "USED"),
    *("P99 STRETCH", "WORST STRETCH", "CHANGES"),
)
_FALSE_FRACTIONS = (0.1, 0.3)
"""The fractions of jobs with an unknown or a false length."""


def with_false_lengths(world: World, *, fraction: float, seed: int) -> World:
    """Return a world in which a fraction of the jobs misleads kfext.

    Half of these jobs show no end and have no series; the others have the series of a random job.
    """
    random = Random(seed)
    jobs = []
    for spec in world.jobs:
        drawn, wrong_series = random.random(), random.choice(world.jobs).trains
        if drawn < fraction / 2:
            jobs.append(replace(spec, trains="", shows_end=False))
        else:
            jobs.append(replace(spec, trains=wrong_series) if drawn < fraction else spec)
    return World(world.nodes, tuple(jobs))


def _misled(arm: Arm, fraction: float) -> Arm:
    return lambda world, luck: arm(with_false_lengths(world, fraction=fraction, seed=luck), luck)


_TRUTHFUL: Mapping[str, Arm] = {**SHIPPED, **ABLATIONS}
ARMS: Mapping[str, Arm] = {
    **_TRUTHFUL,
    **{
        f"{name}, {fraction:.0%} false": _misled(arm, fraction)
        for name, arm in _TRUTHFUL.items()
        for fraction in _FALSE_FRACTIONS
    },
}


def rows(
    title: str,
    draw: Callable[[int], World],
    arms: Sequence[str],
    *,
    numbers: Iterable[int],
    published: Published,
    against: str,
    modules: Sequence[str],
) -> str:
    """Return a table with a row for each scheduler, over the workloads with these `numbers`.

    `arms`: the names of kfext's arms and of the published schedulers. `modules`: as in `Runs`. A
    95 % interval needs two workloads.
    """
    numbers = list(numbers)
    runs = Runs(title, draw, ARMS, ("ablations", "beside", *modules))

    published_times = cache(published)

    @cache
    def find(arm: str, number: int, luck: int) -> Run:
        times = published_times(arm, number)
        return runs.find(arm, number, luck) if times is None else _as_run(draw(number), times)

    cells = []
    for row in compare(arms, numbers, find, against=against):
        arm_runs = [find(row.arm, number, luck_of(number)) for number in numbers]
        elapsed = [job.elapsed for run in arm_runs for job in run.jobs.values()]
        stretches = [
            job.elapsed / run.alone[name] for run in arm_runs for name, job in run.jobs.items()
        ]
        cells.append(
            (
                row.arm,
                f"{fmean(elapsed):.0f}",
                f"{row.against:+.1%}",
                SHOWN["95 %"](row),
                f"{quantile(elapsed, 0.99):.0f}",
                f"{fmean(run.makespan for run in arm_runs):.0f}",
                SHOWN["USED"](row),
                f"{quantile(stretches, 0.99):.1f}",
                f"{max(stretches):.0f}",
                "-" if math.isnan(row.utilisation) else SHOWN["CHANGES"](row),
            )
        )
    return table(f"{title}, against {against}", _HEAD, cells)


def _as_run(world: World, times: Mapping[str, float]) -> Run:
    """Return the published times as a run of the world; unpublished values are NaN."""
    jobs = {
        spec.name: Ended(spec.name, times[spec.name], math.nan, math.nan, 0.0)
        for spec in world.jobs
    }
    ends = [spec.arrives + times[spec.name] for spec in world.jobs]
    alone = {spec.name: spec.alone for spec in world.jobs}
    return Run(jobs, alone, makespan=max(ends), utilisation=math.nan, changes=0)
