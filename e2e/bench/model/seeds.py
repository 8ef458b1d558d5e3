"""The seeds of worlds that were not used to tune kfext, and figures over them."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from kfext.sim.compare import quantile

SEEDS = tuple(range(20_000, 20_020))
_RESAMPLES = 1_000
_Run = TypeVar("_Run")
"""The result of a seed."""


def over_seeds(runs: Sequence[_Run], figure: Callable[[Sequence[_Run]], float], form: str) -> str:
    """Return a figure of runs, with its interval of 95 % by the bootstrap over seeds."""
    random, shown = Random(0), form.format(figure(runs))
    if len(runs) < 2:
        return shown
    drawn = [figure(random.choices(runs, k=len(runs))) for _ in range(_RESAMPLES)]
    low, high = (form.format(quantile(drawn, part)) for part in (0.025, 0.975))
    return f"{shown} ({low}-{high})"
