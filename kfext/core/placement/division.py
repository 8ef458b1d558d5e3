"""The cost of dividing a gang over several nodes. Pure arithmetic on shares.

A share is the number of members that one node gets; 6+6 and 10+2 are divisions of twelve members
over two nodes. Rules that make one division better than another, and their weights, go here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Costs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weights:
    """The costs of a division, in units of one doubling of the number of nodes.

    `crossing`: for members that communicate over the network at all. It exceeds all other costs,
        so one node is best.
    `doubling`: for twice as many nodes, because the next job needs whole nodes.
    `lopsided`: for a fullest node with twice its even share, because the link of the fullest node
        sets the pace of the job. At 10, one member above an even share of up to ten outweighs
        twice the nodes (balanced before fewest); one above an even share of fifty does not.
    `sharing`: for twice as many members on the fullest node, thus behind one link. It is 0 because
        the cost differs between models (in the measurements published with AdaptDL, 2+2 takes 1.6
        times as long as 1+1+1+1 for BERT, but the same time for ResNet-50 with large batches),
        while spreading always takes nodes from other jobs. Set it where the cost is known.
    """

    crossing: float = 100.0
    doubling: float = 1.0
    lopsided: float = 10.0
    sharing: float = 0.0


DEFAULT = Weights()
FEWEST = Weights(doubling=1e6)
"""As few nodes as possible; balance decides only between node sets of equal size."""

BALANCE = "the fullest node sets the pace of the job"
"""Why a balanced division is better."""


def costs(count: int, nodes: Counts, largest: Counts, *, weights: Weights = DEFAULT) -> Costs:
    """Return the costs of divisions, linear in the weights; the lowest is the best.

    Each division is of `count` members over `nodes` nodes with at most `largest` on one.
    """
    excess = largest / -(-count // nodes) - 1
    total: Costs = weights.crossing + weights.doubling * np.log2(nodes) + weights.lopsided * excess
    if weights.sharing:
        total += weights.sharing * np.log2(largest)
    total[nodes == 1] = 0.0
    return total


def cost(shares: Sequence[int], weights: Weights = DEFAULT) -> float:
    """Return the cost of a division into `shares`; nodes without a member do not count."""
    taken = [share for share in shares if share]
    nodes, largest = np.array([len(taken)]), np.array([max(taken)])
    return float(costs(sum(taken), nodes, largest, weights=weights)[0])


def fullest(capacity: Counts, count: int, sizes: Counts) -> Counts:
    """Return, for each number of nodes in `sizes`, the smallest possible largest share.

    `capacity` is how many members each node holds, largest first; each of the `sizes` must be
    enough nodes for `count` members.
    """
    filled = np.concatenate(([0], np.cumsum(capacity)))
    low, high = -(-count // sizes), np.full(len(sizes), min(int(capacity[0]), count))
    level = low  # an even share mostly suffices
    while (low < high).any():
        above = np.minimum(np.searchsorted(-capacity, -level, side="right"), sizes)
        enough = level * above + filled[sizes] - filled[above] >= count
        low, high = np.where(enough, low, level + 1), np.where(enough, level, high)
        level = (low + high) // 2
    return low


def even(capacity: Counts, count: int) -> Counts:
    """Return the most even shares of `count` members, the larger ones first, if they fit.

    `capacity` is how many members each node holds, largest first.
    """
    size = np.array([len(capacity)])
    level = int(fullest(capacity, count, size)[0])
    shares = np.minimum(capacity, level)
    full = np.flatnonzero(shares == level)
    surplus = int(shares.sum()) - count
    shares[full[len(full) - surplus :]] -= 1
    return shares


def instead(shares: Sequence[int], fewest: Sequence[int], *, why: str = BALANCE) -> str:
    """Return why a division takes more nodes than the one over the fewest, empty if it does not."""
    if len(shares) <= len(fewest):
        return ""
    return (
        f"{len(shares)} nodes with {_each(shares)} instead of {len(fewest)} with {_each(fewest)}, "
        f"because {why}"
    )


def _each(shares: Sequence[int]) -> str:
    low, high = min(shares), max(shares)
    pods = "pod" if high == 1 else "pods"
    return f"{low} {pods} each" if low == high else f"{low} to {high} {pods} each"
