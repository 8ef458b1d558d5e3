"""Divide a gang that no single node holds over the best node set.

The division is chosen first, by its cost (core.placement.division), then the nodes for it, by
their ranking. Consecutive ranks stay together, the first ranks on the largest share, the highest
on the smallest, so that an elastic surplus comes last. A rule that makes one node set better than
another goes here; one that weighs divisions goes to core.placement.division.
"""

import numpy as np

from kfext.core.placement.division import (
    DEFAULT,
    Costs,
    Counts,
    Weights,
    cost,
    costs,
    even,
    fullest,
)
from kfext.core.placement.gang import Gang
from kfext.core.placement.pack import decreasing, fill
from kfext.core.placement.pool import Pool
from kfext.core.placement.score import Ranking, Rows
from kfext.core.placement.search import Bound, searched

MOST_NODES = 2
"""A balanced node set has at most this many times the fewest nodes that hold the gang."""

_TRIES = 12
"""How many sizes of a node set are tried for unequal members; for equal ones the first is right."""


def divide(
    gang: Gang,
    pool: Pool,
    *,
    ranking: Ranking,
    weights: Weights = DEFAULT,
    most: int | None = None,
    bound: Bound | None = None,
) -> Rows | None:
    """Return the row of each member, or None if no node set was found that holds the gang.

    `most` limits how many nodes balance may cost; None: the limit follows from the pool itself.
    `bound`: of the searches that are the last resort for unlike members (core.placement.search);
    without anything left of it there are none.
    """
    if not pool.may_hold(gang):
        return None
    count = len(gang.members)
    sizes, _ = divisions(pool.capacity, count, weights=weights)
    if most is not None:
        sizes = sizes[sizes <= max(most, sizes.min())]
    if len(gang.batches) == 1:
        spots, shares = _nodes(pool, count, int(sizes[0]), ranking=ranking)
        return np.repeat(pool.rows[spots], shares)
    balanced = _balanced(gang, pool, sizes[:_TRIES], ranking=ranking)
    chosen = _unlike(gang, pool, balanced, ranking=ranking, weights=weights, bound=bound)
    return None if chosen is None else pool.rows[chosen]


def fewest_nodes(capacity: Counts, count: int) -> int:
    """Return the fewest nodes that hold `count` members; `capacity` is per node."""
    return int(np.searchsorted(np.cumsum(np.sort(capacity)[::-1]), count)) + 1


def divisions(capacity: Counts, count: int, *, weights: Weights) -> tuple[Counts, Costs]:
    """Return the numbers of nodes to divide `count` members over, the cheapest first, and costs.

    `capacity` is how many members each node holds. The result is exact if all members are equal,
    else it is a lower bound.
    """
    capacity = np.sort(capacity)[::-1]
    fewest = int(np.searchsorted(np.cumsum(capacity), count)) + 1
    sizes = np.arange(fewest, min(MOST_NODES * fewest, len(capacity), count) + 1)
    prices = costs(count, sizes, fullest(capacity, count, sizes), weights=weights)
    cheapest = np.argsort(prices, kind="stable")
    return sizes[cheapest], prices[cheapest]


def _balanced(gang: Gang, pool: Pool, sizes: Counts, *, ranking: Ranking) -> Rows | None:
    """Return the position of each member on the first of the `sizes` on which they fit.

    Members differ, so nodes with balanced numbers of them may be too small.
    """
    count = len(gang.members)
    for size in sizes:
        spots, shares = _nodes(pool, count, int(size), ranking=ranking)
        for limit in (shares, count):
            placed = fill(gang, pool.only(spots), limit=limit)
            if placed is not None:
                return spots[placed]
    return None


def _nodes(pool: Pool, count: int, size: int, *, ranking: Ranking) -> tuple[Rows, Counts]:
    """Return the best `size` positions for the most even division, and the share of each.

    If the nodes allow equal shares (but for one member), these are the best nodes by ranking that
    can take them; else the nodes with the most capacity.
    """
    share, more = divmod(count, size)
    able = np.flatnonzero(pool.capacity >= share)
    larger = np.flatnonzero(pool.capacity[able] > share) if more else able[:0]
    if len(able) >= size and len(larger) >= more:
        ranks = ranking(pool.rows[able])
        first = larger[_lowest(ranks[larger], more)]
        ranks[first] = np.arange(more) + np.iinfo(np.int64).min
        return able[_lowest(ranks, size)], np.full(size, share) + (np.arange(size) < more)
    least = np.partition(pool.capacity, len(pool.capacity) - size)[len(pool.capacity) - size]
    roomy = np.flatnonzero(pool.capacity >= least)
    spots = roomy[np.lexsort((ranking(pool.rows[roomy]), -pool.capacity[roomy]))[:size]]
    return spots, even(pool.capacity[spots], count)


def _lowest(ranks: Counts, number: int) -> Rows:
    """Return the indexes of the lowest `number` of the ranks, in their order."""
    if number < len(ranks):
        found = np.argpartition(ranks, number)[:number]
        return found[np.argsort(ranks[found])]
    return np.argsort(ranks)


def _unlike(
    gang: Gang,
    pool: Pool,
    balanced: Rows | None,
    *,
    ranking: Ranking,
    weights: Weights,
    bound: Bound | None,
) -> Rows | None:
    """Return the cheapest of the divisions found for members that differ.

    A balanced division may take more nodes than it should, or may not be found at all.
    """
    searches = bound is None or bound.left > 0
    found = [] if balanced is None else [balanced]
    found += decreasing(gang, pool, ranking=ranking)
    if not found:
        return searched(gang, pool, ranking=ranking, bound=bound) if searches else None
    least = _at_least(gang, pool)
    most = min(len(np.unique(placed)) for placed in found)
    if searches:
        sizes = range(least, (most - 1) // MOST_NODES + 1)  # on less than half as many nodes
        tighter = searched(gang, pool, ranking=ranking, sizes=sizes, bound=bound) if sizes else None
        found += [] if tighter is None else [tighter]
    divisions = [np.unique(placed, return_counts=True)[1].tolist() for placed in found]
    # Balance is not worth many more nodes than are provably needed.
    most = max(MOST_NODES * least, min(map(len, divisions)))
    allowed = [number for number, shares in enumerate(divisions) if len(shares) <= most]
    return found[min(allowed, key=lambda number: cost(divisions[number], weights))]


def _at_least(gang: Gang, pool: Pool) -> int:
    """Return a lower bound of the nodes that the gang needs, by number and by each resource."""
    bounds = [fewest_nodes(pool.capacity, len(gang.members)), gang.one_each]
    for amounts, wanted in zip(pool.free, gang.total, strict=True):
        bounds.append(fewest_nodes(np.maximum(amounts, 0), int(wanted)))
    return max(bounds)
