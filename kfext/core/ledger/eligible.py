"""Which nodes are eligible for a pod, free capacity aside: one mask per kind of pod, kept current.

Few kinds of pods ask many times, so each node is judged once per kind and the result is cached.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.fit import Obstacle, why_not
from kfext.model.constraints import Constraints
from kfext.model.node import Node

Mask = NDArray[np.bool_]

_MOST_KINDS = 256
"""How many different constraints are cached; each costs nine bytes per node."""


@dataclass(slots=True)
class _Judged:
    """The rows for one kind of pod: which are eligible, and what excludes the others."""

    mask: Mask
    obstacles: list[Obstacle | None]
    counts: Counter[Obstacle]

    def set(self, row: int, *, exists: bool, obstacle: Obstacle | None) -> None:
        known = self.obstacles[row]
        if known is not None:
            self.counts[known] -= 1
            if not self.counts[known]:
                del self.counts[known]  # taints with a time in them would be counted for ever
        if obstacle is not None:
            self.counts[obstacle] += 1
        self.obstacles[row] = obstacle
        self.mask[row] = exists and obstacle is None


class Eligibility:
    """Masks over the rows of a ledger, by constraints. Other pods are not considered."""

    def __init__(self) -> None:
        self._judged: dict[Constraints, _Judged] = {}

    def of(self, constraints: Constraints, nodes: Sequence[Node | None], *, width: int) -> Mask:
        """Return which rows are eligible, `width` long; rows beyond the nodes are not."""
        return self._of(constraints, nodes, width=width).mask

    def obstacles(
        self, constraints: Constraints, nodes: Sequence[Node | None], *, width: int
    ) -> Mapping[Obstacle, int]:
        """Return how many nodes each obstacle excludes; the first one of a node counts."""
        return self._of(constraints, nodes, width=width).counts

    def _of(self, constraints: Constraints, nodes: Sequence[Node | None], *, width: int) -> _Judged:
        key = constraints
        if constraints.host_ports or constraints.gang_terms:
            key = replace(constraints, host_ports=(), apart=(), together=())
        judged = self._judged.get(key)
        if judged is None:
            if len(self._judged) >= _MOST_KINDS:  # the oldest goes
                del self._judged[next(iter(self._judged))]
            found = [None if node is None else why_not(key, node) for node in nodes]
            mask = np.zeros(width, dtype=np.bool_)
            mask[: len(nodes)] = [
                node is not None and obstacle is None
                for node, obstacle in zip(nodes, found, strict=True)
            ]
            counts = Counter(obstacle for obstacle in found if obstacle is not None)
            judged = _Judged(mask, [*found, *[None] * (width - len(found))], counts)
            self._judged[key] = judged
        return judged

    def set(self, row: int, node: Node | None) -> None:
        """Judge a row again; None: it has no node any more."""
        for constraints, judged in self._judged.items():
            obstacle = None if node is None else why_not(constraints, node)
            judged.set(row, exists=node is not None, obstacle=obstacle)

    def widen(self, width: int) -> None:
        """Make space for more rows."""
        for judged in self._judged.values():
            more = width - len(judged.obstacles)
            judged.mask = np.concatenate([judged.mask, np.zeros(more, dtype=np.bool_)])
            judged.obstacles += [None] * more
