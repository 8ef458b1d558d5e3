"""How long a step takes by placement, linear between what was measured.

Up to four nodes were measured by the GPUs on each of them, more by the numbers of nodes and GPUs.
Between these numbers the time is linear over nodes, GPUs and the batch of a GPU, in Delaunay's
triangulation of the measured points. The points form a grid, so eight or six of them lie on one
sphere, and Delaunay allows several cuts of their box or prism into tetrahedra. The published
simulator has the cuts that Qhull, in scipy, happens to make. Where scipy is installed they are used
here, and all completion times of V3 are the published ones to the second. Without scipy, a box is
cut into two prisms, and in a prism the time is linear over nodes and GPUs, and over the batch.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from scipy.interpolate import LinearNDInterpolator
except ModuleNotFoundError:
    LinearNDInterpolator = None

AS_PUBLISHED = LinearNDInterpolator is not None
"""Whether the points are triangulated as in the published simulator."""

Floats = NDArray[np.float64]
Size = tuple[int, int]
"""The numbers of nodes and GPUs of a job."""
Placement = tuple[int, ...]
"""The GPUs on each node of a job."""
_ROUNDING = 1e-9


class Times(NamedTuple):
    """Seconds of a step: all of it, and the part that waits for the gradients of others.

    Both are nan outside of what was measured.
    """

    step: Floats
    sync: Floats


class Sample(NamedTuple):
    """A measured step. `local`: the batch of a GPU in samples; `step`, `sync`: see `Times`."""

    nodes: int
    gpus: int
    local: int
    step: float
    sync: float


@dataclass(frozen=True, eq=False)
class _Curve:
    """Times by the batch of a GPU, which ascends."""

    local: Floats
    times: Times

    def at(self, local: ArrayLike) -> Times:
        asked = np.asarray(local, np.float64)
        step, sync = (
            np.asarray(np.interp(asked, self.local, seconds, left=np.nan, right=np.nan))
            for seconds in self.times
        )
        return Times(step, sync)


class StepTimes:
    """The step times of a model.

    `placed`: the samples of each placement on up to four nodes, in its smallest rotation.
    `larger`: the samples on more nodes.
    """

    def __init__(
        self, placed: Mapping[Placement, Sequence[Sample]], larger: Sequence[Sample]
    ) -> None:
        self._placed = {placement: _curve(samples) for placement, samples in placed.items()}
        sized: dict[Size, list[Sample]] = defaultdict(list)
        measured = sorted(sample for samples in placed.values() for sample in samples)
        for sample in (*measured, *larger):  # their order decides how Qhull cuts
            sized[sample.nodes, sample.gpus].append(sample)
        self._sized = {size: _curve(samples) for size, samples in sized.items()}

    def of(self, placement: Placement, local: ArrayLike) -> Times:
        """Return the times of a placement. Its rotations are as fast: the ring is the same."""
        rotations = (placement[at:] + placement[:at] for at in range(len(placement)))
        if found := self._placed.get(min(rotations)):
            return found.at(local)
        return self.sized(len(placement), sum(placement), local)

    def sized(self, nodes: int, gpus: int, local: ArrayLike) -> Times:
        """Return the times by the numbers of nodes and GPUs: the mean of their placements."""
        if found := self._sized.get((nodes, gpus)):
            return found.at(local)
        if AS_PUBLISHED:
            both = self._tetrahedra(nodes, gpus, local)
            return Times(both[..., 0], both[..., 1])
        corners = _corners(self._sized, nodes, gpus)
        step = sync = np.full(np.shape(local), 0.0 if corners else np.nan)
        for size, weight in corners.items():
            times = self._sized[size].at(local)
            step, sync = step + weight * times.step, sync + weight * times.sync
        return Times(step, sync)

    @cached_property
    def _tetrahedra(self) -> Any:
        points = [(*size, local) for size, found in self._sized.items() for local in found.local]
        times = [np.transpose(found.times) for found in self._sized.values()]
        return LinearNDInterpolator(points, np.concatenate(times))


def _curve(samples: Iterable[Sample]) -> _Curve:
    """Return the mean times of samples by the batch of a GPU."""
    by_local: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_local[sample.local].append(sample)
    local = sorted(by_local)
    step = [np.mean([sample.step for sample in by_local[size]]) for size in local]
    sync = [np.mean([sample.sync for sample in by_local[size]]) for size in local]
    return _Curve(np.array(local, np.float64), Times(np.array(step), np.array(sync)))


def _corners(sizes: Iterable[Size], nodes: int, gpus: int) -> dict[Size, float]:
    """Return the measured sizes around another, each with its weight; none if it lies outside.

    Between two measured numbers of nodes lies a strip of triangles. Each has two corners on a
    number of nodes and one on the other, so the sides between them cross all numbers of nodes.
    """
    rows: dict[int, list[int]] = defaultdict(list)
    for row, measured in sorted(sizes):
        rows[row].append(measured)
    low = max((row for row in rows if row <= nodes), default=0)
    high = min((row for row in rows if row >= nodes), default=0)
    if not low or not high:
        return {}
    share = (nodes - low) / (high - low) if low < high else 0.0
    for before, after in pairwise(_sides(rows[low], rows[high])):
        start, end = (below + share * (above - below) for below, above in (before, after))
        if start < end and start - _ROUNDING <= gpus <= end + _ROUNDING:
            along = (gpus - start) / (end - start)
            weights: dict[Size, float] = defaultdict(float)
            for (below, above), part in ((before, 1 - along), (after, along)):
                weights[low, below] += (1 - share) * part
                weights[high, above] += share * part
            return {size: weight for size, weight in weights.items() if weight > _ROUNDING}
    return {}


def _sides(below: Sequence[int], above: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the sides between the triangles of a strip, by the GPUs at both of their ends.

    From one side to the next, the end with the nearer middle of its next gap advances: so the
    circle of a triangle has no other point inside.
    """
    gaps = sorted(
        (first + second, row, second)
        for row, gpus in enumerate((below, above))
        for first, second in pairwise(gpus)
    )
    ends = [below[0], above[0]]
    yield ends[0], ends[1]
    for _, row, gpus in gaps:
        ends[row] = gpus
        yield ends[0], ends[1]
