"""A run: pods arrive in random order, each is placed or refused at once, and none ends.

Source: the published runs of "Beware of Fragmentation" (see `trace`). Copies of random pods are
appended, or random pods are dropped, until the pods request 130 % of all GPUs. The order of the
nodes, which decides ties, is drawn for each seed. Amounts of GPUs are in thousandths of a GPU.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from e2e.bench.model.openb.cluster import Cluster, Ints, Place
from e2e.bench.model.openb.fragmentation import Typical
from e2e.bench.model.openb.trace import WHOLE, Node, Pod

Placer = Callable[[Cluster, Pod], Place | None]
"""Returns the place of a pod, or None; it does not change the cluster."""
REQUESTED = 1.3
"""The GPUs that the pods of a run request, divided by all GPUs."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The nodes in the order of ties, and the pods in the order of arrival."""

    seed: int
    nodes: Sequence[Node]
    pods: Sequence[Pod]

    def random(self) -> np.random.Generator:
        return np.random.default_rng((self.seed, 1))


def draw(nodes: Sequence[Node], pods: Sequence[Pod], *, seed: int) -> Draw:
    random = np.random.default_rng(seed)
    requested_limit = REQUESTED * WHOLE * sum(node.gpus for node in nodes)
    arrivals = [pods[number] for number in random.permutation(len(pods))]
    total = sum(pod.requested for pod in arrivals)
    if total > requested_limit:
        while total > requested_limit:
            total -= arrivals.pop(int(random.integers(len(arrivals)))).requested
    else:
        # As published, this test counts only one of the GPUs of a pod.
        while total + (pod := pods[int(random.integers(len(pods)))]).milli <= requested_limit:
            total += pod.requested
            arrivals.append(pod)
    return Draw(seed, [nodes[row] for row in random.permutation(len(nodes))], arrivals)


@dataclass(frozen=True, slots=True)
class Course:
    """The requested, allocated and fragmented amounts after each arrival.

    `capacity`: the total of all GPUs. `arrived`: the requests of all pods so far. `allocated`: the
    requests of the placed pods. `fragmented`: NaN where it was not measured.
    """

    capacity: int
    arrived: Ints
    allocated: Ints
    fragmented: NDArray[np.float64]

    def allocation(self, load: int) -> float:
        """Return the allocated percentage of all GPUs at a load in percent."""
        return self._mean(self.allocated, load)

    def fragmentation(self, load: int) -> float:
        """Return the fragmented percentage of all GPUs at a load in percent."""
        return self._mean(self.fragmented, load)

    def _mean(self, amounts: NDArray[np.int64] | NDArray[np.float64], load: int) -> float:
        """Return the mean over the arrivals after which the load, rounded, is this percentage."""
        mean = float(amounts[_loads(self.arrived, self.capacity) == load].mean())
        return 100 * mean / self.capacity


def fill(run: Draw, placer: Placer, *, typical: Typical, loads: Collection[int] = ()) -> Course:
    """Return the course of a run.

    `typical`: measures the fragmentation. `loads`: the loads to measure it at, in percent.
    """
    cluster = Cluster(run.nodes)
    capacity = int(cluster.gpu.sum())
    arrived: Ints = np.cumsum([pod.requested for pod in run.pods], dtype=np.int64)
    allocated, fragmented = np.zeros_like(arrived), np.full(len(arrived), np.nan)
    measured = np.isin(_loads(arrived, capacity), list(loads))
    total = 0
    for number, pod in enumerate(run.pods):
        place = placer(cluster, pod)
        if place is not None:
            cluster.place_pod(pod, place)
            total += pod.requested
        allocated[number] = total
        if measured[number]:
            fragmented[number] = typical.fragmented(cluster.cpu, cluster.gpu, cluster.model).sum()
    return Course(capacity, arrived, allocated, fragmented)


def _loads(arrived: Ints, capacity: int) -> NDArray[np.float64]:
    return np.rint(100 * arrived / capacity)
