"""When jobs on a node would end if all had equal shares of its CPU from their beginning on.

Source: Friedman and Henderson, the Fair Sojourn Protocol, SIGMETRICS 2003: the job that would end
first under equal shares goes first, and then no job ends later than under equal shares.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sharer:
    """A job on a node. `came`: seconds since the epoch. `work`: core-seconds in all.

    `most`: the cores that it can use.
    """

    uid: str
    came: float
    work: float
    most: float = math.inf


def fair_ends(sharers: Iterable[Sharer], *, cores: float) -> dict[str, float]:
    """Return by uid when each job would end, in seconds since the epoch; infinity if unknown."""
    coming = sorted(sharers, key=lambda sharer: (sharer.came, sharer.uid), reverse=True)
    ends = dict.fromkeys((sharer.uid for sharer in coming), math.inf)
    left: dict[Sharer, float] = {}
    # Times count from the first job on: epoch seconds are too large to add fractions exactly.
    origin, now = coming[-1].came if coming else 0.0, 0.0
    while coming or any(map(math.isfinite, left.values())):
        speeds = _equal_shares(left, cores=cores)
        due = {
            sharer: now + left[sharer] / speed if speed > 0 else math.inf
            for sharer, speed in speeds.items()
        }
        then = min(*due.values(), coming[-1].came - origin if coming else math.inf, math.inf)
        if math.isinf(then):
            break
        for sharer, speed in speeds.items():
            left[sharer] -= speed * (then - now)
        now = then
        # What is left when a job ends is a rounding error, and as large as its work may be.
        for sharer in [job for job, rest in left.items() if rest <= _TINY or due[job] <= now]:
            ends[sharer.uid] = origin + now
            del left[sharer]
        while coming and coming[-1].came - origin <= now:
            sharer = coming.pop()
            left[sharer] = max(sharer.work, 2 * _TINY)
    return ends


_TINY = 1e-6


def _equal_shares(left: Mapping[Sharer, float], *, cores: float) -> dict[Sharer, float]:
    """Return the cores of each job: equal, but no more than it can use."""
    shares: dict[Sharer, float] = {}
    rest = cores
    by_most: Sequence[Sharer] = sorted(left, key=lambda sharer: sharer.most)
    for number, sharer in enumerate(by_most):
        shares[sharer] = min(sharer.most, rest / (len(by_most) - number))
        rest -= shares[sharer]
    return shares
