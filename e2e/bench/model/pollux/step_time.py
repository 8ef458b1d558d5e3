"""The time of a step by placement, interpolated linearly between measured points.

On up to four nodes, times were measured by the GPUs on each node; on more nodes, by the numbers of
nodes and GPUs. Other times are interpolated over nodes, GPUs and the batch of a GPU, in a Delaunay
triangulation of the measured points. The points form a grid, which has several triangulations; as
in the published simulator, scipy's (Qhull's) is used.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import LinearNDInterpolator

Floats = NDArray[np.float64]
Size = tuple[int, int]
"""The numbers of nodes and GPUs of a job."""
Placement = tuple[int, ...]
"""The GPUs on each node of a job."""


class Times(NamedTuple):
    """Seconds of a step: the whole step, and its wait for the gradients of other GPUs.

    Both are NaN outside the measured range.
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
    """Times by the batch of a GPU, ascending."""

    local: Floats
    times: Times

    def at(self, local: ArrayLike) -> Times:
        batches = np.asarray(local, np.float64)
        step, sync = (
            np.asarray(np.interp(batches, self.local, seconds, left=np.nan, right=np.nan))
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
        for sample in (*measured, *larger):  # their order decides the triangulation of Qhull
            sized[sample.nodes, sample.gpus].append(sample)
        self._sized = {size: _curve(samples) for size, samples in sized.items()}

    def of(self, placement: Placement, local: ArrayLike) -> Times:
        """Return the times of a placement; its rotations form the same ring, so are as fast."""
        rotations = (placement[cut:] + placement[:cut] for cut in range(len(placement)))
        if curve := self._placed.get(min(rotations)):
            return curve.at(local)
        return self.sized(len(placement), sum(placement), local)

    def sized(self, nodes: int, gpus: int, local: ArrayLike) -> Times:
        """Return the mean times over the placements of these numbers of nodes and GPUs."""
        if curve := self._sized.get((nodes, gpus)):
            return curve.at(local)
        step_and_sync = self._tetrahedra(nodes, gpus, local)
        return Times(step_and_sync[..., 0], step_and_sync[..., 1])

    @cached_property
    def _tetrahedra(self) -> Any:
        points = [(*size, local) for size, curve in self._sized.items() for local in curve.local]
        times = [np.transpose(curve.times) for curve in self._sized.values()]
        return LinearNDInterpolator(points, np.concatenate(times))


def _curve(samples: Iterable[Sample]) -> _Curve:
    by_local: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_local[sample.local].append(sample)
    local = sorted(by_local)
    step = [np.mean([sample.step for sample in by_local[size]]) for size in local]
    sync = [np.mean([sample.sync for sample in by_local[size]]) for size in local]
    return _Curve(np.array(local, np.float64), Times(np.array(step), np.array(sync)))
