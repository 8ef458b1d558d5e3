"""How fast a job is with any number of workers, fitted to the sizes with which it has run.

The time of a step is a / n + b + c * n with n workers: work that is divided among them, work that
is not, and what each worker adds for all others. No term is negative.
Sources: the speed functions of Optimus (Peng et al., EuroSys 2018) and Pollux (Qiao et al., OSDI
2021), reduced to one number of workers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Floats: TypeAlias = npt.NDArray[np.float64]
_MOST_SIZES = 16
"""Sizes that are fitted to, the largest ones."""
_SLOWEST, _FASTEST = 1e-9, 1e9
"""Steps a second that are believed."""
_TERMS = 3
_EQUAL = 1e-9
"""By how much the errors of two fits may differ without one being the better."""


@dataclass(frozen=True, slots=True)
class Speed:
    """A fitted speed: seconds that each term of a step takes, as in the head of this file."""

    divided: float
    constant: float
    added: float

    def at(self, workers: int) -> float:
        """Return the steps a second with so many workers, 0.0 without any."""
        if workers < 1:
            return 0.0
        return 1.0 / (self.divided / workers + self.constant + self.added * workers)


def fitted(speeds: Mapping[int, float]) -> Speed | None:
    """Return the speed that fits best; `speeds`: steps a second by number of workers.

    A step has to be the same amount of work with every number of workers, as where workers divide a
    fixed global batch among them. Where the batch grows with the workers steps get no faster, so
    that growth is never seen to pay: count examples there, not steps.

    None with fewer than two sizes, which show nothing of what another worker would gain. Errors are
    relative, as fast steps are measured as well as slow ones. Of fits that are equally good, as two
    sizes have, it is the one that expects the least of growing to twice the largest size.
    """
    known = sorted(
        (size, speed)
        for size, speed in speeds.items()
        if size > 0 and _SLOWEST <= speed <= _FASTEST
    )[-_MOST_SIZES:]
    if len(known) < 2:
        return None
    sizes, measured = np.array(known, dtype=float).T
    fits = list(_fits(sizes, measured))
    best = min(error for error, _ in fits)
    twice = 2 * known[-1][0]
    return min(
        (one for error, one in fits if error <= best + _EQUAL), key=lambda one: one.at(twice)
    )


def _fits(sizes: _Floats, measured: _Floats) -> Iterator[tuple[float, Speed]]:
    """Yield the least-squares fit of each choice of terms that has no negative one, with its error.

    The best of these is the non-negative least-squares fit.
    """
    scale = np.array([1.0 / sizes[-1], 1.0, sizes[-1]])
    # Each row is divided by the measured time, so that all steps are to take 1.
    terms = np.stack([1.0 / sizes, np.ones_like(sizes), sizes], axis=1) / scale
    rows, ones = terms * measured[:, None], np.ones_like(sizes)
    for count in range(1, min(_TERMS, len(sizes)) + 1):
        for chosen in map(list, combinations(range(_TERMS), count)):
            found = np.linalg.lstsq(rows[:, chosen], ones, rcond=None)[0]
            if (found < 0).any() or not found.any():
                continue
            values = np.zeros(_TERMS)
            values[chosen] = found
            error = float(np.mean((rows @ values - ones) ** 2))
            yield error, Speed(*(float(one) for one in values / scale))
