"""V8: the shape of the published effects of FlowCon, SpeCon and DRAGON, and of the rebuilt ones.

These papers name no trace, so the worlds have their number of jobs and nodes, and only the sign and
the size of an effect are compared. CMS-DL's effect is of the network, which is not in the model:
`cluster` measures it on real nodes.

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

_PART = 1 / 3
"""The tolerance, as a part of the published effect."""
_SAME = 0.03
"""The largest change that counts as no effect."""
_HEAD = ("paper", "world", "seeds", "against", "figure", "published", "rebuilt", "", "kfext")
Pair = tuple[Run, Run]
"""A run, and its reference."""


def _best(pair: Pair) -> float:
    run, other = pair
    return min(job.elapsed / other.jobs[name].elapsed for name, job in run.jobs.items()) - 1


FIGURES: dict[str, Callable[[Pair], float]] = {
    "best job": _best,
    "mean": lambda pair: pair[0].mean / pair[1].mean - 1,
    "makespan": lambda pair: pair[0].makespan / pair[1].makespan - 1,
}


class Effect(NamedTuple):
    """A published change by a scheduler: `value` -0.2 is 20 % less time."""

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
    """Return V8. It needs no trace, and uses the runs of `simulate`."""
    rows = []
    for effect in PUBLISHED:
        say(f"  {effect.paper}, {effect.figure}")
        rows.append(list(_row(effect, quick=quick)))
    return table("V8: effects in shape", _HEAD, rows)


def _row(effect: Effect, *, quick: bool) -> Iterator[str]:
    seeds = seeds_of(effect.world, quick=quick)
    rebuilt, own = (_pairs(effect, arm, seeds) for arm in (effect.arm, KFEXT))
    yield from (effect.paper, effect.world, f"{len(rebuilt)} of {len(seeds)}", effect.against)
    yield from (effect.figure, f"{effect.value:+.1%}")
    if not rebuilt:
        yield from ("-", "MISS: no run under both ended", "-")
        return
    mean = fmean(map(FIGURES[effect.figure], rebuilt))
    yield f"{mean:+.1%}"
    yield verdict(abs(mean - effect.value) <= max(_PART * abs(effect.value), _SAME))
    yield f"{fmean(map(FIGURES[effect.figure], own)):+.1%}" if own else "-"


def _pairs(effect: Effect, arm: str, seeds: Sequence[int]) -> list[Pair]:
    """Return the runs of the seeds on which both arms ended all jobs."""
    runs = runs_of(effect.world)
    pairs = [
        tuple(runs.find(name, seed, luck_of(seed)) for name in (arm, effect.against))
        for seed in seeds
    ]
    return [(run, other) for run, other in pairs if run.ended and other.ended]
