"""Seeds that were not used to tune kfext, and a value over them with its confidence interval."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from kfext.sim.compare import quantile

SEEDS = tuple(range(20_000, 20_020))
_RESAMPLES = 1_000
_Run = TypeVar("_Run")
"""The result of a run of one seed."""


def over_seeds(
    runs: Sequence[_Run], figure: Callable[[Sequence[_Run]], float], format_: str
) -> str:
    """Return a value of the runs with its 95 % interval, by a bootstrap over seeds."""
    random, estimate = Random(0), format_.format(figure(runs))
    if len(runs) < 2:
        return estimate
    resampled = [figure(random.choices(runs, k=len(runs))) for _ in range(_RESAMPLES)]
    low, high = (format_.format(quantile(resampled, part)) for part in (0.025, 0.975))
    return f"{estimate} ({low}-{high})"
