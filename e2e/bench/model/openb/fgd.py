"""FGD: places each pod where it adds least to the fragmentation of the GPUs.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, and its published code, faults
included: the score is truncated to a whole number from 0 to 100, so that many nodes are equal, and
the first of them gets the pod.

For a request, a score depends on the node alone; so scores are cached, and only nodes with a newer
pod are scored again.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from e2e.bench.model.openb.cluster import Cluster, Ints, Place, Rows
from e2e.bench.model.openb.fragmentation import Typical
from e2e.bench.model.openb.trace import WHOLE, Pod

_NOT_SCORED = -1


@dataclass(frozen=True, slots=True)
class _Scores:
    """For a request, by row: the score, the best GPU for a share, and `Cluster.changed` then."""

    score: Ints
    gpu: Ints
    seen: Ints


class FGD:
    """The scheduler, for a workload with these typical pods."""

    def __init__(self, typical: Typical) -> None:
        self._typical = typical
        self._known: dict[tuple[int, int, int], _Scores] = {}

    def __call__(self, cluster: Cluster, pod: Pod) -> Place | None:
        rows = cluster.fitting(pod)
        if not len(rows):
            return None
        key = (pod.cpu, pod.gpus, pod.milli)
        known = self._known.get(key)
        if known is None:
            unknown = np.full_like(cluster.changed, _NOT_SCORED)
            known = self._known[key] = _Scores(unknown, unknown.copy(), unknown.copy())
        stale = rows[known.seen[rows] != cluster.changed[rows]]
        if len(stale):
            known.score[stale], known.gpu[stale] = self._score(cluster, pod, stale)
            known.seen[stale] = cluster.changed[stale]
        row = int(rows[known.score[rows].argmax()])
        return row, [int(known.gpu[row])] if pod.shares else cluster.fullest(row, pod)

    def _score(self, cluster: Cluster, pod: Pod, rows: Rows) -> tuple[Ints, Ints]:
        """Return the score of each row, and the GPU with that score for a pod with a share."""
        gpu = cluster.gpu[rows]
        if not pod.shares:
            free = gpu == WHOLE
            chosen = free & (free.cumsum(axis=1) <= pod.gpus)
            every = np.arange(len(rows))
            return self._scores(cluster, pod, rows, every, np.where(chosen, 0, gpu)), every
        position, number = np.nonzero(gpu >= pod.milli)
        after = gpu[position]
        after[np.arange(len(position)), number] -= pod.milli
        scores: Ints = np.full(gpu.shape, _NOT_SCORED, dtype=np.int64)
        scores[position, number] = self._scores(cluster, pod, rows, position, after)
        return scores.max(axis=1), scores.argmax(axis=1)

    def _scores(
        self, cluster: Cluster, pod: Pod, rows: Rows, position: NDArray[np.intp], after: Ints
    ) -> Ints:
        """Return the score of each way to place a pod.

        `position`: of the node in `rows`. `after`: its free GPUs afterwards, shape (ways, GPUs).
        """
        cpu, model = cluster.cpu[rows], cluster.model[rows]
        before = self._typical.fragmented(cpu, cluster.gpu[rows], model)
        then = self._typical.fragmented(cpu[position] - pod.cpu, after, model[position])
        return (100 / (1 + np.exp((then - before[position]) / WHOLE))).astype(np.int64)
