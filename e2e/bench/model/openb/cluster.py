"""The free capacity of a cluster that only fills up, as arrays over its nodes.

A row is a node. Of equal nodes the lowest row wins, so rows are in the order of node names.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from e2e.bench.model.openb.trace import WHOLE, Node, Pod

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Place = tuple[int, Sequence[int]]
"""The row of a node, and the GPUs of a pod on that node."""


class Cluster:
    """The free amounts of each node.

    `cpu`, `memory`: the free amounts, in millicores and MiB, shape (rows,).
    `gpu`: the free thousandths of each GPU, shape (rows, most GPUs of a node); 0 for no GPU.
    `gpus`: the number of GPUs, shape (rows,).
    `models`: the GPU types of the cluster; `model`: the index of each node's type, shape (rows,).
    `kinds`: whether a node has a pod of a kind, shape (rows, kinds). Pods of kind 0 share a GPU,
        pods of kind k have k whole GPUs.
    `changed`: the number of the last pod that was placed on a node, shape (rows,).
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.cpu: Ints = np.array([node.cpu for node in nodes], dtype=np.int64)
        self.memory: Ints = np.array([node.memory for node in nodes], dtype=np.int64)
        self.gpus: Ints = np.array([node.gpus for node in nodes], dtype=np.int64)
        most_gpus = int(self.gpus.max())
        self.gpu: Ints = np.where(np.arange(most_gpus) < self.gpus[:, None], WHOLE, 0).astype(
            np.int64
        )
        self.models = sorted({node.model for node in nodes})
        self.model: Rows = np.array([self.models.index(node.model) for node in nodes])
        self.kinds: Mask = np.zeros((len(nodes), most_gpus + 1), dtype=np.bool_)
        self.changed: Ints = np.zeros(len(nodes), dtype=np.int64)
        self._pods = 0
        self._allowed_by_types: dict[str, Mask] = {}

    def fitting(self, pod: Pod) -> Rows:
        fits = (self.cpu >= pod.cpu) & (self.memory >= pod.memory)
        if pod.gpus:
            fits &= (self.gpu >= pod.milli).sum(axis=1) >= pod.gpus
            fits &= self._allowed(pod.types)
        return np.flatnonzero(fits)

    def place_pod(self, pod: Pod, place: Place) -> None:
        """Subtract the requests of a pod that was placed."""
        row, gpus = place
        self._pods += 1
        self.cpu[row] -= pod.cpu
        self.memory[row] -= pod.memory
        self.gpu[row, list(gpus)] -= pod.milli
        if pod.gpus:
            self.kinds[row, kind_of(pod)] = True
        self.changed[row] = self._pods

    def fullest(self, row: int, pod: Pod) -> Sequence[int]:
        """Return the fullest GPU that fits a pod with a share; for others the first free GPUs.

        The pod must fit the row. Of equally full GPUs, the lowest number is returned.
        """
        free = self.gpu[row]
        if pod.shares:
            return [int(np.where(free >= pod.milli, free, WHOLE + 1).argmin())]
        return [int(number) for number in np.flatnonzero(free == WHOLE)[: pod.gpus]]

    def _allowed(self, types: str) -> Mask:
        if types not in self._allowed_by_types:
            self._allowed_by_types[types] = allowed(types, self.models)[self.model]
        return self._allowed_by_types[types]


def kind_of(pod: Pod) -> int:
    """Return the kind of a pod with GPUs: 0 if it shares a GPU, else their number."""
    return 0 if pod.shares else pod.gpus


def allowed(types: str, models: Sequence[str]) -> Mask:
    wanted = {name for name in types.split("|") if name}
    return np.array([not wanted or model in wanted for model in models], dtype=np.bool_)
