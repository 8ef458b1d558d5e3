"""Which nodes are eligible for a pod, free capacity aside: one mask per kind of pod, kept current.

Few kinds of pods ask many times, so each node is judged once per kind and the result is cached.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.fit import why_not
from kfext.model.constraints import Constraints
from kfext.model.node import Node

Mask = NDArray[np.bool_]

_MOST_MASKS = 256
"""How many different constraints are cached; each costs a byte per node."""


class Eligibility:
    """Masks over the rows of a ledger, by constraints. Other pods are not considered."""

    def __init__(self) -> None:
        self._masks: dict[Constraints, Mask] = {}

    def of(self, constraints: Constraints, nodes: Sequence[Node | None], *, width: int) -> Mask:
        """Return which rows are eligible, `width` long; rows beyond the nodes are not."""
        alone = bool(constraints.host_ports or constraints.gang_terms)
        key = constraints
        if alone:
            key = replace(constraints, host_ports=(), apart=(), together=())
        mask = self._masks.get(key)
        if mask is None:
            if len(self._masks) >= _MOST_MASKS:  # the oldest goes
                del self._masks[next(iter(self._masks))]
            mask = np.zeros(width, dtype=np.bool_)
            mask[: len(nodes)] = [node is not None and why_not(key, node) is None for node in nodes]
            self._masks[key] = mask
        return mask

    def set(self, row: int, node: Node | None) -> None:
        """Judge a row again; None: it has no node any more."""
        for constraints, mask in self._masks.items():
            mask[row] = node is not None and why_not(constraints, node) is None

    def widen(self, width: int) -> None:
        """Make space for more rows."""
        for key, mask in self._masks.items():
            grown = np.zeros(width, dtype=np.bool_)
            grown[: len(mask)] = mask
            self._masks[key] = grown
