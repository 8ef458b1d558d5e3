"""The published schedulers that score nodes by simple rules, and the random scheduler.

Source: the published code of "Beware of Fragmentation" (see `trace`), faults included. A score is
truncated to a whole number from 0 to 100; the first of equal nodes gets the pod. On that node, a
pod with a share gets the fullest GPU that fits it, and others the first free GPUs.
"""

from collections.abc import Callable

import numpy as np

from e2e.bench.model.openb.cluster import Cluster, Ints, Place, Rows, kind_of
from e2e.bench.model.openb.fill import Placer
from e2e.bench.model.openb.trace import WHOLE, Pod

_MAX_CPU, _MAX_GPU = 128_000, 8 * WHOLE
"""The capacity of the cluster's largest node; all amounts are divided by it."""
Score = Callable[[Cluster, Pod, Rows], Ints]
"""Returns the score of each row on which the pod fits; the highest is the best."""


def scheduler_by(score: Score) -> Placer:
    """Return the scheduler that chooses the node with the highest score."""

    def place(cluster: Cluster, pod: Pod) -> Place | None:
        rows = cluster.fitting(pod)
        if not len(rows):
            return None
        row = int(rows[score(cluster, pod, rows).argmax()])
        return row, cluster.fullest(row, pod)

    return place


def at_random(random: np.random.Generator) -> Placer:
    """Return the scheduler Random: any node that fits, and for a share any GPU that fits."""

    def place(cluster: Cluster, pod: Pod) -> Place | None:
        rows = cluster.fitting(pod)
        if not len(rows):
            return None
        row = int(random.choice(rows))
        if pod.shares:
            return row, [int(random.choice(np.flatnonzero(cluster.gpu[row] >= pod.milli)))]
        return row, cluster.fullest(row, pod)

    return place


def dot_product(cluster: Cluster, pod: Pod, rows: Rows) -> Ints:
    """Return the scores of DotProd: highest for the node least aligned with the request.

    It uses Tetris' dot product (SIGCOMM 2014) of the free and the requested CPU and GPU.
    """
    cpu = cluster.cpu[rows] / _MAX_CPU * (pod.cpu / _MAX_CPU)
    gpu = cluster.gpu[rows].sum(axis=1) / _MAX_GPU * (pod.requested / _MAX_GPU)
    scores: Ints = (100 * (1 - (cpu + gpu) / 2)).astype(np.int64)
    return scores


def gpu_clustering(cluster: Cluster, pod: Pod, rows: Rows) -> Ints:
    """Return the scores of GpuClustering: pods of a kind together, then the fullest node.

    Nodes with pods of only this kind are first, then nodes with other kinds too, then nodes without
    pods with GPUs, and last nodes with only other kinds. Without a GPU, all scores are 0.
    """
    if not pod.gpus:
        return np.zeros(len(rows), dtype=np.int64)
    kinds = cluster.kinds[rows]
    number, has_kind = kinds.sum(axis=1), kinds[:, kind_of(pod)]
    group = np.select([has_kind & (number == 1), has_kind, number == 0], [75, 50, 25], 0)
    used = _MAX_GPU - cluster.gpu[rows].sum(axis=1)
    scores: Ints = group + 25 * used // _MAX_GPU
    return scores


def gpu_packing(cluster: Cluster, pod: Pod, rows: Rows) -> Ints:
    """Return the scores of GpuPacking: used GPUs, then free GPUs of used nodes, then free nodes.

    Of used GPUs the fullest are first; of free nodes, nodes with few GPUs. Without a GPU, all
    scores are 0.
    """
    if not pod.gpus:
        return np.zeros(len(rows), dtype=np.int64)
    gpu = cluster.gpu[rows]
    free = (gpu == WHOLE).sum(axis=1)
    usable = np.where(gpu >= pod.milli, gpu, 2 * WHOLE)
    chosen = np.sort(usable, axis=1)[:, : pod.gpus]
    new_gpus = (chosen == WHOLE).sum(axis=1)
    used_gpus = np.maximum(100 - (chosen * 100 // WHOLE).sum(axis=1) // 10, 50)
    used_nodes = np.maximum(50 - new_gpus, 33)
    free_nodes = np.maximum(33 - free, free)
    idle = free == cluster.gpus[rows]
    scores: Ints = np.select([idle, new_gpus > 0], [free_nodes, used_nodes], used_gpus)
    return scores


def best_fit(cluster: Cluster, pod: Pod, rows: Rows) -> Ints:
    """Return the scores of BestFit: highest for the node with the least CPU and GPU left.

    The truncated scores are stretched to 0-100 over the nodes on which the pod fits.
    """
    cpu = (cluster.cpu[rows] - pod.cpu) / _MAX_CPU
    gpu = (cluster.gpu[rows].sum(axis=1) - pod.requested) / _MAX_GPU
    scores: Ints = ((1 - (cpu + gpu) / 2) * 100).astype(np.int64)
    scores -= scores.min()
    stretched: Ints = scores * 100 // max(int(scores.max()), 1)
    return stretched
