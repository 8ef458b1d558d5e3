"""A measured model: a job's speed with a placement and a batch, and the ends of its epochs.

Progress is counted in iterations with the smallest batch. An iteration with a larger batch gains
less than in proportion to its size; how much less depends on the noise of the gradient.
Source: Qiao et al., Pollux, OSDI 2021, sections 2 and 3, and its simulator.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from e2e.bench.model.pollux.step_time import Floats, Placement, StepTimes, Times


class Batch(NamedTuple):
    """The work of each GPU in a step: `accumulated` + 1 passes of `local` samples each."""

    local: int
    accumulated: int

    def samples(self, gpus: int) -> int:
        return gpus * self.local * (self.accumulated + 1)


class Noise(NamedTuple):
    """The squared norm of the gradient, and its variance with the smallest batch."""

    sqr: float
    var: float

    def gain(self, scale: Floats) -> Floats:
        """Return the number of steps with the smallest batch that equal a step with a larger batch.

        `scale`: the larger batch divided by the smallest.
        """
        return (self.var + self.sqr) / (self.var / scale + self.sqr)


@dataclass(frozen=True, eq=False)
class Application:
    """A model that was trained with B different batches for E epochs.

    `batches`: the samples of all GPUs, ascending, shape (B,).
    `iterations`: those until the end of each epoch, shape (B, E). `sqr`, `var`: see `Noise` (B, E).
    `ends`: the progress at the end of each epoch, shape (E,).
    `least_local`, `most_local`: the least and the most samples of a GPU in a pass.
    """

    name: str
    times: StepTimes
    batches: Floats
    iterations: Floats
    sqr: Floats
    var: Floats
    ends: Floats
    least_local: int
    most_local: int

    @property
    def least_batch(self) -> int:
        return int(self.batches[0])

    @property
    def most_batch(self) -> int:
        return int(self.batches[-1])

    @property
    def epochs(self) -> int:
        return len(self.ends)

    def noise(self, samples: int, epoch: int) -> Noise:
        """Return the noise in an epoch, linear between the measured batches."""
        return Noise(self._at(self.sqr, samples, epoch), self._at(self.var, samples, epoch))

    def iterations_until(self, samples: int, epoch: int) -> float:
        return self._at(self.iterations, samples, epoch)

    def batch(self, samples: int, gpus: int) -> Batch:
        """Return the division of a batch between GPUs.

        One GPU with more than the smallest batch needs two passes: one pass does not show the
        noise, and the learning rate depends on it.
        """
        passes = ceil(ceil(samples, gpus), self.most_local)
        if gpus == 1 and samples > self.least_batch:
            passes = max(passes, 2)
        return self.split(samples, gpus, passes=passes)

    def split(self, samples: int, gpus: int, *, passes: int) -> Batch:
        most = self.most_batch // (gpus * passes)
        return Batch(min(ceil(ceil(samples, gpus), passes), most), passes - 1)

    def steps(self, samples: int) -> float:
        """Return the number of steps with a batch until the end of training."""
        scale = np.array(samples / self.least_batch)
        gains = [self.noise(samples, epoch).gain(scale) for epoch in range(self.epochs)]
        return float((np.diff(self.ends, prepend=0.0) / np.array(gains)).sum())

    def training_seconds(self, samples: int, gpus: int, nodes: int) -> float:
        """Return the seconds of training with the nearest batch that the GPUs can share."""
        batch = self.batch(samples, gpus)
        return self.steps(batch.samples(gpus)) * self.mean_seconds(nodes, gpus, batch)

    def rate(self, placement: Placement, batch: Batch, epoch: int) -> float:
        samples = batch.samples(sum(placement))
        gain = self.noise(samples, epoch).gain(np.array(samples / self.least_batch))
        return float(gain) / self.step_seconds(placement, batch)

    def step_seconds(self, placement: Placement, batch: Batch) -> float:
        return float(seconds(self.times.of(placement, batch.local), batch.accumulated))

    def mean_seconds(self, nodes: int, gpus: int, batch: Batch) -> float:
        """Return the seconds of a step: the mean over the placements of `gpus` on `nodes`."""
        return float(seconds(self.times.sized(nodes, gpus, batch.local), batch.accumulated))

    def _at(self, values: Floats, samples: int, epoch: int) -> float:
        return float(np.interp(samples, self.batches, values[:, epoch]))


def seconds(times: Times, accumulated: int | Floats) -> Floats:
    """Return the seconds of a step; only its last pass waits for gradients."""
    return times.step + accumulated * (times.step - times.sync)


def ceil(dividend: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-dividend // divisor)
