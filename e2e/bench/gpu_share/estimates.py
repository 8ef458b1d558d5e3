"""What the readings of several runs come to: ratios with intervals, and whether losses agree."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Blocks = Sequence[Sequence[float]]
"""The rates of one job in one arm, by repeat and by second."""
_DRAWS = 2000
_SEED = 1
_Array = np.ndarray[Any, Any]


def agreed(runs: Iterable[Mapping[str, str]]) -> tuple[int, bool]:
    """Return up to which step the losses of at least two runs were compared, and if all agree."""
    seen: dict[int, list[str]] = {}
    for run in runs:
        for count, digest in run.items():
            seen.setdefault(int(count), []).append(digest)
    compared = {count: found for count, found in seen.items() if len(found) > 1}
    return max(compared, default=0), all(len({*found}) == 1 for found in compared.values())


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its interval of 95 %."""

    value: float
    low: float
    high: float

    def percent(self) -> str:
        """Return it in percent, e.g. `2.5 (1.9 to 3.2)`."""
        return f"{100 * self.value:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"


def ratio(of: Blocks, to: Blocks) -> Estimate:
    """Return the mean of one arm divided by that of the other, and a bootstrap interval.

    Repeats are drawn, the same ones for both arms, and of each the seconds (A. Davison and
    D. Hinkley, "Bootstrap Methods and their Application", 1997, 3.8).
    """
    pairs = [(np.array(one), np.array(other)) for one, other in zip(of, to, strict=False)]
    draw = np.random.default_rng(_SEED)

    def means(pair: tuple[_Array, _Array]) -> tuple[float, float]:
        one, other = (values[draw.integers(len(values), size=len(values))] for values in pair)
        return one.mean(), other.mean()

    drawn = []
    for _ in range(_DRAWS):
        chosen = [means(pairs[place]) for place in draw.integers(len(pairs), size=len(pairs))]
        drawn.append(sum(one for one, _ in chosen) / sum(other for _, other in chosen))
    value = sum(one.mean() for one, _ in pairs) / sum(other.mean() for _, other in pairs)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(float(value), float(low), float(high))


def mapped(estimate: Estimate, function: Callable[[float], float]) -> Estimate:
    """Return the estimate of a monotonic function of a figure."""
    ends = sorted((function(estimate.low), function(estimate.high)))
    return Estimate(function(estimate.value), *ends)


def bound(high: float, low: float) -> float:
    """Return what low can get at most without a loss for high, by how busy each is alone."""
    return min(1.0, (1 - high) / low)
