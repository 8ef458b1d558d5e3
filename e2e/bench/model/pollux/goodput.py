"""Goodput: a job's progress per second with each number of GPUs, and its best batch.

Source: Qiao et al., Pollux, OSDI 2021, section 3. Pollux estimates step times from the steps of a
job so far; here they are exact.
"""

import numpy as np

from e2e.bench.model.pollux.application import Application, Batch, Noise, seconds
from e2e.bench.model.pollux.cluster import GPUS, GPUS_OF_NODE, packed
from e2e.bench.model.pollux.step_time import Floats

SIZES = (*range(1, GPUS_OF_NODE), *range(GPUS_OF_NODE, GPUS + 1, GPUS_OF_NODE))
"""The allowed numbers of GPUs of a job: up to a node's, or whole nodes."""
_BATCH_COUNT = 50
"""The number of batches that are compared; they form a geometric series."""


class Goodput:
    """The goodput of a model. `sizes`: the S of `SIZES` that it can use."""

    def __init__(self, application: Application) -> None:
        most = application.most_batch
        self.sizes = tuple(size for size in SIZES if size * application.least_local <= most)
        self._batches = [_batches(application, size) for size in self.sizes]
        shapes = list(zip(self.sizes, self._batches, strict=True))
        samples = [[batch.samples(size) for batch in batches] for size, batches in shapes]
        self._scale = np.array(samples) / application.least_batch
        self._seconds = np.array([_seconds(application, *shape) for shape in shapes])

    def best(self, noise: Noise) -> Floats:
        """Return the goodput with the best batch for each size, shape (S,)."""
        best: Floats = self._all(noise).max(axis=1)
        return best

    def batch(self, noise: Noise, gpus: int) -> Batch:
        row = self.sizes.index(gpus)
        return self._batches[row][int(self._all(noise)[row].argmax())]

    def _all(self, noise: Noise) -> Floats:
        """Return the goodput by size and batch; 0 if the batch does not fit a GPU."""
        return np.asarray(np.nan_to_num(noise.gain(self._scale) / self._seconds), np.float64)


def _batches(application: Application, gpus: int) -> list[Batch]:
    least = max(application.least_batch, application.least_local * gpus)
    totals = np.geomspace(least, application.most_batch, _BATCH_COUNT)
    return [application.batch(round(total), gpus) for total in totals]


def _seconds(application: Application, gpus: int, batches: list[Batch]) -> Floats:
    local, accumulated = np.array(batches, np.float64).T
    return seconds(application.times.of(packed(gpus), local), accumulated)
