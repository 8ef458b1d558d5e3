"""FGD's fragmentation: the amount of a node's free GPUs that is useless to typical pods.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, and its published code. The typical
pods are the most frequent requests for CPU and GPUs that make up 95 % of a workload. For each of
them, the free amount of a GPU with too little is useless; if the pod does not fit the node at all,
or needs no GPU, the free amount of all GPUs is useless.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from e2e.bench.model.openb.cluster import Ints, Rows, allowed
from e2e.bench.model.openb.trace import Pod

_TYPICAL_FRACTION = 0.95
"""The least fraction of all pods that the typical pods make up."""


class Typical:
    """The typical pods of a workload.

    `pods`: all pods of the workload. `models`: the GPU types of the cluster.
    """

    def __init__(self, pods: Sequence[Pod], models: Sequence[str]) -> None:
        counts = Counter((pod.cpu, pod.milli, pod.gpus, pod.types) for pod in pods)
        popular = sorted(counts, key=lambda key: (counts[key], key), reverse=True)
        reached = np.cumsum([counts[key] for key in popular])
        popular = popular[: int(np.searchsorted(reached, _TYPICAL_FRACTION * len(pods))) + 1]
        self._counts: Ints = np.array([counts[key] for key in popular], dtype=np.int64)
        cpu, milli, gpus, types = zip(*popular, strict=True)
        self._cpu: Ints = np.array(cpu)[:, None]
        self._gpus: Ints = np.array(gpus)[:, None]
        self._allowed = np.array([allowed(names, models) for names in types])
        self._sizes, self._size = np.unique(milli, return_inverse=True)

    def fragmented(self, cpu: Ints, gpu: Ints, model: Rows) -> NDArray[np.float64]:
        """Return the useless thousandths of GPUs of each node: the mean over the typical pods.

        `cpu`: the free millicores, shape (nodes,). `gpu`: the free thousandths of each GPU, shape
        (nodes, GPUs). `model`: the index of the GPU type, shape (nodes,).
        """
        large = gpu >= self._sizes[:, None, None]
        count, room = large.sum(axis=2), (gpu * large).sum(axis=2)
        hosts = (count[self._size] >= self._gpus) & (self._gpus > 0)
        hosts &= (cpu >= self._cpu) & self._allowed[:, model]
        useful: Ints = self._counts @ (hosts * room[self._size])
        # Integers up to here, so that equal nodes get exactly the same float.
        fragmented: NDArray[np.float64] = gpu.sum(axis=1) - useful / self._counts.sum()
        return fragmented
