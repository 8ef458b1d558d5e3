"""V8: the effects of FlowCon, SpeCon and DRAGON, as published and as rebuilt.

These papers name no trace, so the worlds have only their numbers of jobs and nodes, and only the
sign and the size of an effect are compared. CMS-DL's effect comes from the network, which is not
simulated; the benchmark `cluster` measures it on real nodes.

Sources: Zheng et al., FlowCon, ICPP 2019 and its journal version; Mao et al., SpeCon, 2021; Lin et
al., DRAGON, CLOSER 2019.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from e2e.bench.model.measure import DRAGON, MAP, runs_of, seeds_of
from e2e.bench.report import table, verdict
from e2e.testbed.progress import say
from kfext.sim.arms import KFEXT, PLAIN
from kfext.sim.compare import Run, luck_of

_RELATIVE_TOLERANCE = 1 / 3
"""The tolerance as a fraction of the published effect."""
_ABSOLUTE_TOLERANCE = 0.03
"""The tolerance if that fraction is smaller."""
_HEAD = ("paper", "world", "seeds", "against", "figure", "published", "rebuilt", "", "kfext")
Pair = tuple[Run, Run]
"""A run, and the run of the reference arm with the same seed."""


def _best(pair: Pair) -> float:
    run, reference = pair
    return min(job.elapsed / reference.jobs[name].elapsed for name, job in run.jobs.items()) - 1


FIGURES: dict[str, Callable[[Pair], float]] = {
    "best job": _best,
    "mean": lambda pair: pair[0].mean / pair[1].mean - 1,
    "makespan": lambda pair: pair[0].makespan / pair[1].makespan - 1,
}


class Effect(NamedTuple):
    """A change that a paper reports for its scheduler. `value`: -0.2 means 20 % less time."""

    paper: str
    world: str
    arm: str
    against: str
    figure: str
    value: float


PUBLISHED = (
    Effect("FlowCon", "threads-20", "flowcon", MAP, "best job", -0.4206),
    Effect("FlowCon", "threads-20", "flowcon", MAP, "makespan", 0.0),
    Effect("FlowCon 2", "threads-20", "flowcon-2", MAP, "best job", -0.688),
    Effect("FlowCon 2", "threads-20", "flowcon-2", MAP, "makespan", -0.18),
    Effect("SpeCon", "threads-50", "specon", MAP, "best job", -0.415),
    Effect("SpeCon", "threads-50", "specon", MAP, "mean", -0.148),
    Effect("SpeCon", "threads-50", "specon", MAP, "makespan", -0.247),
    Effect("DRAGON", "dragon-0.8", DRAGON, PLAIN, "mean", -0.65),
    Effect("DRAGON", "dragon-0.9", DRAGON, PLAIN, "mean", -0.65),
)


def measure(_data: Path, *, quick: bool) -> str:
    rows = []
    for effect in PUBLISHED:
        say(f"  {effect.paper}, {effect.figure}")
        rows.append(list(_row(effect, quick=quick)))
    return table("V8: effects in shape", _HEAD, rows)


def _row(effect: Effect, *, quick: bool) -> Iterator[str]:
    seeds = seeds_of(effect.world, quick=quick)
    rebuilt, kfext_pairs = (_pairs(effect, arm, seeds) for arm in (effect.arm, KFEXT))
    yield from (effect.paper, effect.world, f"{len(rebuilt)} of {len(seeds)}", effect.against)
    yield from (effect.figure, f"{effect.value:+.1%}")
    if not rebuilt:
        yield from ("-", "MISS: no run under both ended", "-")
        return
    mean = fmean(map(FIGURES[effect.figure], rebuilt))
    yield f"{mean:+.1%}"
    yield verdict(
        abs(mean - effect.value)
        <= max(_RELATIVE_TOLERANCE * abs(effect.value), _ABSOLUTE_TOLERANCE)
    )
    yield f"{fmean(map(FIGURES[effect.figure], kfext_pairs)):+.1%}" if kfext_pairs else "-"


def _pairs(effect: Effect, arm: str, seeds: Sequence[int]) -> list[Pair]:
    """Return the runs of each seed where both arms ended all jobs."""
    runs = runs_of(effect.world)
    pairs = [
        tuple(runs.find(name, seed, luck_of(seed)) for name in (arm, effect.against))
        for seed in seeds
    ]
    return [(run, reference) for run, reference in pairs if run.ended and reference.ended]
