"""SRTF and SRSF: the job with the least remaining work is first, and others stop for it.

Source: Muri's simulator (github.com/Rivendile/Muri, simulator/). SRTF ranks jobs by their remaining
time, SRSF by remaining time times GPUs. Both know the iterations of a job. All jobs are placed
again at each decision, in order of rank. A job that does not fit is skipped, and a later job may
run, so GPUs on several nodes may be free but too few on each of them.
"""

import math
from collections.abc import Callable

from e2e.bench.model.muri.replay import Live
from e2e.bench.model.muri.trace import Cluster


class Shortest:
    """Runs the jobs with the least `rank` that fit; equal jobs keep their order."""

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
    """Return the scheduler by shortest remaining time."""
    return Shortest(cluster, lambda live: live.remaining)


def srsf(cluster: Cluster) -> Shortest:
    """Return the scheduler by shortest remaining service, which is time times GPUs."""
    return Shortest(cluster, lambda live: live.remaining * live.job.gpus)


def take(free: list[int], gpus: int, per_node: int) -> bool:
    """Subtract GPUs from the free GPUs of the nodes, and return whether they fit.

    A job gets whole nodes, and its remaining GPUs on the first other node that has them.
    """
    if gpus > sum(free):  # most jobs wait: the quick answer halves the time of a replay
        return False
    whole, rest = divmod(gpus, per_node)
    nodes = [node for node, left in enumerate(free) if left == per_node][:whole]
    others = (node for node, left in enumerate(free) if left >= rest and node not in nodes)
    last = next(others, None) if rest else None
    if len(nodes) < whole or (rest and last is None):
        return False
    for node in nodes:
        free[node] = 0
    if last is not None:
        free[last] -= rest
    return True
