"""SRTF and SRSF: the job with the least remaining work runs first, and others stop for it.

Source: Muri's simulator (github.com/Rivendile/Muri, simulator/). SRTF ranks jobs by their remaining
time, SRSF by remaining time times GPUs. Both know the iterations of a job. At each decision all
jobs are placed again, in order of rank. A job that does not fit is skipped, and a later job may
run; so there may be free GPUs on several nodes, but too few on each.
"""

import math
from collections.abc import Callable

from e2e.bench.model.muri.replay import Live
from e2e.bench.model.muri.trace import Cluster


class Shortest:
    """Runs the jobs that fit, in order of `rank`; jobs of equal rank keep their order."""

    def __init__(self, cluster: Cluster, rank: Callable[[Live], float]) -> None:
        self._cluster, self._rank = cluster, rank
        self._queue: list[Live] = []

    def add(self, live: Live) -> None:
        self._queue.append(live)

    def remove(self, live: Live) -> None:
        self._queue.remove(live)

    def choose(self) -> list[Live]:
        self._queue.sort(key=self._rank)
        free = [self._cluster.gpus] * self._cluster.nodes
        return [live for live in self._queue if take(free, live.job.gpus, self._cluster.gpus)]

    def holds(self) -> float:
        return math.inf


def srtf(cluster: Cluster) -> Shortest:
    return Shortest(cluster, lambda live: live.remaining)


def srsf(cluster: Cluster) -> Shortest:
    """Return the scheduler by shortest remaining service, which is time times GPUs."""
    return Shortest(cluster, lambda live: live.remaining * live.job.gpus)


def take(free: list[int], gpus: int, per_node: int) -> bool:
    """Return whether a job with these GPUs fits; if so, subtract them from the nodes' free GPUs.

    A job gets whole nodes, and its remaining GPUs on the first other node that has them.
    """
    if gpus > sum(free):  # most jobs wait; this quick answer halves the time of a replay
        return False
    whole_nodes, remaining = divmod(gpus, per_node)
    nodes = [node for node, free_gpus in enumerate(free) if free_gpus == per_node][:whole_nodes]
    others = (
        node for node, free_gpus in enumerate(free) if free_gpus >= remaining and node not in nodes
    )
    partial_node = next(others, None) if remaining else None
    if len(nodes) < whole_nodes or (remaining and partial_node is None):
        return False
    for node in nodes:
        free[node] = 0
    if partial_node is not None:
        free[partial_node] -= remaining
    return True
