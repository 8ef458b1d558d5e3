"""How good a division of a gang over several nodes is. Pure arithmetic on shares.

A share is how many members one node gets; 6+6 and 10+2 are divisions of twelve members over two
nodes. What makes one division better than another, and what it weighs, goes here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Costs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weights:
    """What is bad about a division, in units of one doubling of the number of nodes.

    `crossing`: that members talk over the network at all; far more than all else, so one node is
    best. `doubling`: twice as many nodes, because whole nodes are what the next job needs.
    `lopsided`: a fullest node with twice its even share, because the fullest node's link sets the
    pace of all. At 10, one member above an even share of up to ten outweighs twice the nodes
    (balanced before fewest), one above an even share of fifty does not. `sharing`: twice as many
    members on the fullest node, thus behind one link; 0, because what it costs differs from model
    to model (data/pollux: 2+2 takes 1.6 times as long as 1+1+1+1 for BERT, the same for ResNet-50
    with large batches), while spreading always takes nodes from others. Fit it where it is known.
    """

    crossing: float = 100.0
    doubling: float = 1.0
    lopsided: float = 10.0
    sharing: float = 0.0


DEFAULT = Weights()
FEWEST = Weights(doubling=1e6)
"""As few nodes as possible; balance decides only between sets of equal size."""


def costs(count: int, nodes: Counts, largest: Counts, *, weights: Weights = DEFAULT) -> Costs:
    """Return how bad divisions are, the lowest the best, linear in the weights.

    Each division is of `count` members over `nodes` nodes with at most `largest` on one.
    """
    excess = largest / -(-count // nodes) - 1
    total: Costs = weights.crossing + weights.doubling * np.log2(nodes) + weights.lopsided * excess
    if weights.sharing:
        total += weights.sharing * np.log2(largest)
    total[nodes == 1] = 0.0
    return total


def cost(shares: Sequence[int], weights: Weights = DEFAULT) -> float:
    """Return how bad a division into `shares` is; nodes without a member do not count."""
    taken = [share for share in shares if share]
    nodes, largest = np.array([len(taken)]), np.array([max(taken)])
    return float(costs(sum(taken), nodes, largest, weights=weights)[0])


def fullest(capacity: Counts, count: int, sizes: Counts) -> Counts:
    """Return, per number of nodes, the smallest possible largest share of `count` members.

    `capacity` is how many members each node holds, the roomiest first; `sizes` are enough nodes.
    """
    filled = np.concatenate(([0], np.cumsum(capacity)))
    low, high = -(-count // sizes), np.full(len(sizes), min(int(capacity[0]), count))
    level = low  # mostly an even share will do
    while (low < high).any():
        above = np.minimum(np.searchsorted(-capacity, -level, side="right"), sizes)
        enough = level * above + filled[sizes] - filled[above] >= count
        low, high = np.where(enough, low, level + 1), np.where(enough, level, high)
        level = (low + high) // 2
    return low


def even(capacity: Counts, count: int) -> Counts:
    """Return the most even shares of `count` members, the larger first, if they fit.

    `capacity` is how many members each node holds, the roomiest first.
    """
    size = np.array([len(capacity)])
    level = int(fullest(capacity, count, size)[0])
    shares = np.minimum(capacity, level)
    full = np.flatnonzero(shares == level)
    surplus = int(shares.sum()) - count
    shares[full[len(full) - surplus :]] -= 1
    return shares


def instead(shares: Sequence[int], fewest: Sequence[int]) -> str:
    """Return why a division takes more nodes than the one over the fewest, or nothing to say."""
    if len(shares) <= len(fewest):
        return ""
    return (
        f"{len(shares)} nodes with {_each(shares)} instead of {len(fewest)} with {_each(fewest)}, "
        "because the fullest node sets the pace of the job"
    )


def _each(shares: Sequence[int]) -> str:
    low, high = min(shares), max(shares)
    pods = "pod" if high == 1 else "pods"
    return f"{low} {pods} each" if low == high else f"{low} to {high} {pods} each"
