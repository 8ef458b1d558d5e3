"""The topology domain of each node: zone, rack, or what else the administrator's labels define."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kfext.model.node import Node

Domains = NDArray[np.intp]
"""The number of each row's domain on one level; -1 for a row in none."""

_MOST_KEYS = 16
"""How many different lists of keys are cached; they come from policies, so they are few."""


class Topology:
    """The domains of the rows of a ledger, by the keys of node labels, the widest first."""

    def __init__(self) -> None:
        self._levels: dict[tuple[str, ...], tuple[Domains, ...]] = {}

    def of(self, keys: tuple[str, ...], nodes: Sequence[Node | None]) -> tuple[Domains, ...]:
        """Return the domains of the rows on each level, the widest first.

        Two nodes are in one domain of a level if they agree on its key and on all wider ones: rack
        1 of zone a is not rack 1 of zone b. A node without the key is in no domain of the level.
        """
        levels = self._levels.get(keys)
        if levels is None:
            if len(self._levels) >= _MOST_KEYS:  # the oldest goes
                del self._levels[next(iter(self._levels))]
            levels = tuple(_numbered(keys[: at + 1], nodes) for at in range(len(keys)))
            self._levels[keys] = levels
        return levels

    def alone(self, key: str, nodes: Sequence[Node | None]) -> NDArray[np.bool_]:
        """Return which rows share their value of a label with no other row."""
        (numbers,) = self.of((key,), nodes)
        sizes = np.bincount(numbers + 1, minlength=1)
        sizes[0] = 1
        found: NDArray[np.bool_] = sizes[numbers + 1] == 1
        return found

    def forget(self) -> None:
        """Read the labels again at the next call: a node was added, removed or relabelled."""
        self._levels.clear()


def _numbered(keys: Sequence[str], nodes: Sequence[Node | None]) -> Domains:
    """Return the domains of a level, numbered in the order of their labels' values."""
    paths = [
        tuple(node.labels.get(key, "") for key in keys)
        if node is not None and keys[-1] in node.labels
        else None
        for node in nodes
    ]
    number = {path: at for at, path in enumerate(sorted({path for path in paths if path}))}
    return np.array([number[path] if path else -1 for path in paths], dtype=np.intp)
