"""Divide a gang that no single node holds over the best node set, on nodes near each other.

The division is chosen first, by its cost (core.placement.score), then its nodes, by their ranking.
Consecutive ranks stay together. The highest are on the node with the fewest members, because
scaling down removes the highest ranks, and so frees this node first.

Members in one rack communicate over fewer and less shared links than members in two racks. So a
gang is placed in a domain of the narrowest level that holds it, else of the next wider level, else
anywhere. A position is the index of a node in the pool (core.placement.pool).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from kfext.core.ledger.columns import Domains
from kfext.core.placement.gang import Gang
from kfext.core.placement.pool import Bound, Pool, decreasing, fill, searched
from kfext.core.placement.score import (
    DEFAULT,
    Costs,
    Counts,
    Ranking,
    Rows,
    Weights,
    cost,
    costs,
    even_node_counts,
    fullest,
)

SPREAD = 2
"""The largest balanced node set, as a multiple of the fewest nodes that hold the gang."""

_TRIES = 12
"""The most sizes of a node set that are tried for unequal members; equal members fit the first."""


def divide(
    gang: Gang,
    pool: Pool,
    *,
    ranking: Ranking,
    weights: Weights = DEFAULT,
    balanced: int | None = None,
    bound: Bound | None = None,
) -> Rows | None:
    """Return the row of each member, or None: no node set holds the gang.

    `balanced`: the most nodes that a gang may use for balance; by default it follows from the pool.
    `bound`: the limit of the searches for unlike members (core.placement.pool); 0 disables them.
    """
    if not pool.may_hold(gang):
        return None
    count = len(gang.members)
    sizes, _ = divisions(pool.capacity, count, weights=weights)
    sizes = sizes[sizes <= pool.max_nodes]
    if balanced is not None:
        sizes = sizes[sizes <= max(balanced, sizes.min())]
    if len(gang.batches) == 1:
        spots, node_counts = _best_nodes(pool, count, int(sizes[0]), ranking=ranking)
        return np.repeat(pool.rows[spots], node_counts)
    balanced_spots = _balanced(gang, pool, sizes[:_TRIES], ranking=ranking)
    best = _unlike(gang, pool, balanced_spots, ranking=ranking, weights=weights, bound=bound)
    return None if best is None else pool.rows[best]


def fewest_nodes(capacity: Counts, count: int) -> int:
    """Return the fewest nodes that hold `count` members; `capacity` has the members per node."""
    return int(np.searchsorted(np.cumsum(np.sort(capacity)[::-1]), count)) + 1


def divisions(capacity: Counts, count: int, *, weights: Weights) -> tuple[Counts, Costs]:
    """Return the sizes of node sets for `count` members, the cheapest first, and their costs.

    `capacity`: the number of members that each node holds.
    The costs are exact if all members are equal, else lower bounds.
    """
    capacity = np.sort(capacity)[::-1]
    fewest = int(np.searchsorted(np.cumsum(capacity), count)) + 1
    sizes = np.arange(fewest, min(SPREAD * fewest, len(capacity), count) + 1)
    cost_by_size = costs(count, sizes, fullest(capacity, count, sizes), weights=weights)
    cheapest = np.argsort(cost_by_size, kind="stable")
    return sizes[cheapest], cost_by_size[cheapest]


def _balanced(gang: Gang, pool: Pool, sizes: Counts, *, ranking: Ranking) -> Rows | None:
    """Return the position of each member in a node set of the first of the `sizes` that fits.

    Members differ, so a node may be too small for its balanced number of members.
    """
    count = len(gang.members)
    for size in sizes:
        spots, node_counts = _best_nodes(pool, count, int(size), ranking=ranking)
        for limit in (node_counts, count):
            placed = fill(gang, pool.only(spots), limit=limit)
            if placed is not None:
                return spots[placed]
    return None


def _best_nodes(pool: Pool, count: int, size: int, *, ranking: Ranking) -> tuple[Rows, Counts]:
    """Return the best `size` positions for the most even division, and the members of each.

    If counts that differ by one member at most are possible, these are the best nodes by ranking
    that can hold them; else they are the nodes with the most capacity.
    """
    even, more = divmod(count, size)
    able = np.flatnonzero(pool.capacity >= even)
    larger = np.flatnonzero(pool.capacity[able] > even) if more else able[:0]
    if len(able) >= size and len(larger) >= more:
        ranks = ranking(pool.rows[able])
        first = larger[_lowest(ranks[larger], more)]
        ranks[first] = np.arange(more) + np.iinfo(np.int64).min
        return able[_lowest(ranks, size)], np.full(size, even) + (np.arange(size) < more)
    least = np.partition(pool.capacity, len(pool.capacity) - size)[len(pool.capacity) - size]
    largest = np.flatnonzero(pool.capacity >= least)
    spots = largest[np.lexsort((ranking(pool.rows[largest]), -pool.capacity[largest]))[:size]]
    return spots, even_node_counts(pool.capacity[spots], count)


def _lowest(ranks: Counts, number: int) -> Rows:
    """Return the indexes of the lowest `number` of the ranks, lowest first."""
    if number < len(ranks):
        lowest = np.argpartition(ranks, number)[:number]
        return lowest[np.argsort(ranks[lowest])]
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
    """Return the position of each member in the cheapest division found for members that differ.

    `balanced`: the positions in a balanced division, if one was found; it may use more nodes than
        necessary.
    """
    searches = bound is None or bound.left > 0
    placements = [] if balanced is None else [balanced]
    placements += decreasing(gang, pool, ranking=ranking)
    placements = [placed for placed in placements if pool.allows(placed)]
    if not placements:
        return searched(gang, pool, ranking=ranking, bound=bound) if searches else None
    least = _lower_bound(gang, pool)
    most = min(len(np.unique(placed)) for placed in placements)
    if searches:
        sizes = range(least, (most - 1) // SPREAD + 1)  # on less than half as many nodes
        tighter = searched(gang, pool, ranking=ranking, sizes=sizes, bound=bound) if sizes else None
        placements += [] if tighter is None else [tighter]
    divisions = [np.unique(placed, return_counts=True)[1].tolist() for placed in placements]
    # No division may use more than SPREAD times as many nodes as are certainly needed.
    most = max(SPREAD * least, min(map(len, divisions)))
    allowed = [number for number, node_counts in enumerate(divisions) if len(node_counts) <= most]
    return placements[min(allowed, key=lambda number: cost(divisions[number], weights))]


def _lower_bound(gang: Gang, pool: Pool) -> int:
    """Return a lower bound of the number of nodes that the gang needs."""
    bounds = [fewest_nodes(pool.capacity, len(gang.members)), gang.max_anti_affine]
    for amounts, wanted in zip(pool.free, gang.total, strict=True):
        bounds.append(fewest_nodes(np.maximum(amounts, 0), int(wanted)))
    return max(bounds)


_COMPARED = 4
"""The most domains of a level that are compared: the domains with the fewest nodes for the gang."""


def surroundings(
    gang: Gang, pool: Pool, levels: Sequence[Domains], *, weights: Weights
) -> Iterator[Rows]:
    """Yield sets of positions near each other, the best set first, and last all positions.

    `levels`: the domains of all rows, the widest level first.
    A domain is skipped if the gang needs more nodes there than it may use, or more than SPREAD
    times as many as elsewhere: many small nodes in one rack are no better than a few large nodes.
    """
    if levels:
        fewest = fewest_nodes(pool.capacity, len(gang.members))
        most = min(SPREAD * fewest, pool.max_nodes)
        inner: Domains | None = None
        for row_domains in reversed(levels):
            level = row_domains[pool.rows]
            for domain in _able(gang, pool, level, most=most, weights=weights):
                yield from _core(gang, pool, domain, inner, most=most)
                yield domain
            inner = level
        yield from _core(gang, pool, np.arange(len(pool.rows)), inner, most=most)
    yield np.arange(len(pool.rows))


def _able(gang: Gang, pool: Pool, level: Domains, *, most: int, weights: Weights) -> Sequence[Rows]:
    """Return the domains of a level that may hold the gang, the cheapest first."""
    inside, count = np.flatnonzero(level >= 0), len(gang.members)
    if not len(inside):
        return ()
    capacity = _sums(level[inside], pool.capacity[inside])
    able = capacity >= count
    if len(gang.batches) > 1:
        for holds, batch in zip(pool.holds, gang.batches, strict=True):
            able &= _sums(level[inside], holds[inside]) >= batch.count
    inside = inside[able[level[inside]]]
    if not len(inside):
        return ()
    numbers = np.flatnonzero(able)
    fewest = _fewest(level[inside], pool.capacity[inside], count)
    order = np.lexsort((numbers, capacity[numbers], fewest))
    chosen = numbers[order][fewest[order] <= most][:_COMPARED]
    domains = [inside[level[inside] == number] for number in chosen]
    if len(domains) > 1:
        domains.sort(
            key=lambda spots: divisions(pool.capacity[spots], count, weights=weights)[1][0]
        )
    return domains


def _sums(domains: Domains, amounts: Counts) -> Counts:
    return np.bincount(domains, weights=amounts).astype(np.int64)


def _fewest(domains: Domains, capacity: Counts, count: int) -> Counts:
    """Return the fewest nodes that hold `count` members, by domain; each domain can hold them."""
    base = int(capacity.max()) + 1
    keys = np.sort(domains * base + (base - 1 - capacity))  # by domain, the most capacity first
    sorted_domains, gaps = np.divmod(keys, base)
    filled = np.cumsum(base - 1 - gaps)
    starts = np.flatnonzero(np.diff(sorted_domains, prepend=-1))
    before = filled[starts] - (base - 1 - gaps[starts])
    fewest: Counts = np.searchsorted(filled, before + count) - starts + 1
    return fewest


def _core(
    gang: Gang, pool: Pool, domain: Rows, inner: Domains | None, *, most: int
) -> Iterator[Rows]:
    """Yield the fewest inner domains of a domain that may hold the gang, unless these are all."""
    labelled = domain if inner is None else domain[inner[domain] >= 0]
    if inner is None or not len(labelled):
        return
    capacity = _sums(inner[labelled], pool.capacity[labelled])
    order = np.argsort(-capacity, kind="stable")
    last = int(np.searchsorted(np.cumsum(capacity[order]), len(gang.members)))
    core = labelled[np.isin(inner[labelled], order[: last + 1])]
    smaller = last < len(capacity) and len(core) < len(domain)
    if smaller and fewest_nodes(pool.capacity[core], len(gang.members)) <= most:
        yield core


def side_by_side(gang: Gang, rows: Rows, levels: Sequence[Domains]) -> Rows:
    """Return the row of each member, reordered so that each domain holds consecutive ranks.

    Only equal members change places; domains with more members come first.
    """
    narrowest = levels[-1][rows]
    if narrowest.min() == narrowest.max():
        return rows
    nodes, ranks, places, node_counts = np.unique(
        rows, return_index=True, return_inverse=True, return_counts=True
    )
    keys = [ranks]
    for level in reversed(levels):
        domains = level[nodes]
        members = np.bincount(domains + 1, weights=node_counts)[domains + 1]
        keys += [domains, -members]
    order = np.empty(len(nodes), dtype=np.intp)
    order[np.lexsort(keys)] = np.arange(len(nodes))
    ends = np.cumsum([batch.count for batch in gang.batches])
    batches = np.split(places, ends[:-1])
    sorted_ = [batch[np.argsort(order[batch], kind="stable")] for batch in batches]
    reordered: Rows = nodes[np.concatenate(sorted_)]
    return reordered
