"""An elastic scheduler with Pollux's objective: the best harmonic mean of all jobs' speeds.

Source: Qiao et al., Pollux, OSDI 2021, section 4, and its simulator, with these rules:
- A job has the batch with the best goodput. Its speed is its goodput divided by the goodput with a
  fair share of the GPUs.
- By the harmonic mean of all speeds, a job without GPUs costs most.
- The speed of a job that would restart is reduced by the time that restarts have cost it so far.
- A job may have up to twice the most GPUs that it ever had; a new job may have one.
- No two jobs with several nodes share a node.

The search differs: Pollux evolves random allocations; here each step allocates GPUs where each adds
most, and a job has GPUs of a single node, or whole nodes. Step times are exact, not estimated.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from e2e.bench.model.pollux.application import Application, Batch, ceil
from e2e.bench.model.pollux.cluster import GPUS, GPUS_OF_NODE, NODES, RESTART, Allocation, Job
from e2e.bench.model.pollux.goodput import Goodput
from e2e.bench.model.pollux.optimus import SINGLE
from e2e.bench.model.pollux.step_time import Floats

_SPEED_OFFSET = 1e-3
"""Added to each speed, so that a job without GPUs has a finite cost."""
_JOB_SHARE = NODES / GPUS
"""Scales speeds: the nodes divided by the GPUs, as in the published simulator."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """The allowed sizes of a job in GPUs, ascending from 0, and the cost of each."""

    job: Job
    sizes: tuple[int, ...]
    costs: Floats

    def step(self, at: int, left: int) -> tuple[float, int]:
        """Return the largest gain per GPU of a larger size, and the index of that size.

        `at`: the index of the current size. `left`: the number of free GPUs.
        """
        gpus = np.array(self.sizes[at + 1 :]) - self.sizes[at]
        gains = np.where(gpus <= left, (self.costs[at] - self.costs[at + 1 :]) / gpus, -np.inf)
        if not len(gains):
            return 0.0, at
        best = int(gains.argmax())
        return float(gains[best]), at + 1 + best


class Elastic:
    """Allocates GPUs by Pollux's objective, and chooses the batch with the best goodput."""

    def __init__(self) -> None:
        self._goodputs: dict[Application, Goodput] = {}
        self._most: Counter[str] = Counter()

    def allocate(self, jobs: Sequence[Job], *, now: int) -> dict[str, Allocation]:
        """Return the allocations with the least sum of costs that the search finds."""
        for job in jobs:
            self._most[job.name] = max(self._most[job.name], len(job.allocation))
        choices = [self._choice(job, fair=ceil(GPUS, len(jobs)), now=now) for job in jobs]
        return _placed(choices, _sizes(choices))

    def batch(self, job: Job) -> Batch:
        """Return the batch with the best goodput; the smallest before the first step."""
        application, gpus = job.application, len(job.allocation)
        if application.name == SINGLE:
            return application.batch(application.most_batch, gpus)
        if job.noise is None:
            least = max(application.least_batch, application.least_local * gpus)
            return application.batch(least, gpus)
        return self._goodput(application).batch(job.noise, gpus)

    def _goodput(self, application: Application) -> Goodput:
        if application not in self._goodputs:
            self._goodputs[application] = Goodput(application)
        return self._goodputs[application]

    def _choice(self, job: Job, *, fair: int, now: int) -> _Choice:
        """Return the allowed sizes of a job. `fair`: the fair share of GPUs."""
        goodput = self._goodput(job.application)
        most = 1 if job.application.name == SINGLE else max(1, 2 * self._most[job.name])
        sizes = [size for size in goodput.sizes if size <= most]
        speeds = np.array(sizes) / fair
        if job.noise is not None:
            best = goodput.best(job.noise)
            fair_size = min(int(np.searchsorted(goodput.sizes, fair)), len(best) - 1)
            speeds = best[: len(sizes)] / best[fair_size]
        age, paused = now - job.request.submitted, RESTART * max(job.restarts, 0)
        kept_fraction = np.full(len(sizes), max(age - paused, 0) / (age + RESTART))
        if job.allocation:
            kept_fraction[sizes.index(len(job.allocation))] = 1.0
        costs = 1 / (_JOB_SHARE * np.concatenate([[0.0], speeds * kept_fraction]) + _SPEED_OFFSET)
        return _Choice(job, (0, *sizes), costs)


def _sizes(choices: Sequence[_Choice]) -> list[int]:
    """Return the size of each job, grown step by step, each time with the largest gain per GPU."""
    chosen, left = [0] * len(choices), GPUS
    steps = [choice.step(0, left) for choice in choices]
    while True:
        at = max(range(len(steps)), key=lambda index: steps[index][0])
        gain, size = steps[at]
        if gain <= 0:
            return [choice.sizes[index] for choice, index in zip(choices, chosen, strict=True)]
        more = choices[at].sizes[size] - choices[at].sizes[chosen[at]]
        if more <= left:
            chosen[at], left = size, left - more
        steps[at] = choices[at].step(chosen[at], left)


def _placed(choices: Sequence[_Choice], sizes: Iterable[int]) -> dict[str, Allocation]:
    """Return the allocations of all jobs; a job that keeps its size keeps its nodes."""
    free = Counter(dict.fromkeys(range(NODES), GPUS_OF_NODE))
    placed: dict[str, Allocation] = {}
    others: list[tuple[int, Job]] = []
    for choice, size in zip(choices, sizes, strict=True):
        if size == len(choice.job.allocation):
            placed[choice.job.name] = choice.job.allocation
            free.subtract(choice.job.allocation)
        else:
            others.append((size, choice.job))
    for size, job in sorted(others, key=lambda other: -other[0]):
        placed[job.name] = _place(size, job.allocation, free)
        free.subtract(placed[job.name])
    return placed


def _place(size: int, before: Allocation, free: Mapping[int, int]) -> Allocation:
    """Return GPUs for a job; among equal nodes, its previous nodes `before` are preferred.

    Fewer than `size` are returned if too few nodes are free, or no node has enough free GPUs.
    """
    nodes = sorted(free, key=lambda node: node not in before)
    whole = [node for node in nodes if free[node] == GPUS_OF_NODE]
    if size >= GPUS_OF_NODE and whole:
        chosen = sorted(whole[: size // GPUS_OF_NODE])
        return tuple(node for node in chosen for _ in range(GPUS_OF_NODE))
    fits = [node for node in nodes if free[node] >= size]
    node = (
        min(fits, key=lambda node: free[node]) if fits else max(nodes, key=lambda node: free[node])
    )
    return (node,) * min(size, free[node])
