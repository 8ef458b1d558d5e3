"""The parts of the cluster in which a gang is placed, the nearest nodes first.

Members in one rack communicate over fewer and less shared links than members in two. So a gang
goes into a domain of the narrowest level that holds it, else of the next wider, else anywhere.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from kfext.core.ledger.columns import Domains
from kfext.core.placement.division import Counts, Weights
from kfext.core.placement.gang import Gang
from kfext.core.placement.nodeset import MOST_NODES, divisions, fewest_nodes
from kfext.core.placement.pool import Pool
from kfext.core.placement.score import Rows

_COMPARED = 4
"""How many domains of a level are compared: those where the gang needs the fewest nodes."""


def surroundings(
    gang: Gang, pool: Pool, levels: Sequence[Domains], *, weights: Weights
) -> Iterator[Rows]:
    """Yield sets of positions in the pool that lie near each other, the best first, all last.

    `levels` are the domains of all rows, the widest level first. A domain in which the gang takes
    more than MOST_NODES times the nodes that it takes elsewhere is left out: many small nodes in
    one rack are no better than a few large ones.
    """
    if levels:
        most = MOST_NODES * fewest_nodes(pool.capacity, len(gang.members))
        inner: Domains | None = None
        for wide in reversed(levels):
            level = wide[pool.rows]
            for domain in _able(gang, pool, level, most=most, weights=weights):
                yield from _core(gang, pool, domain, inner, most=most)
                yield domain
            inner = level
        yield from _core(gang, pool, np.arange(len(pool.rows)), inner, most=most)
    yield np.arange(len(pool.rows))


def _able(gang: Gang, pool: Pool, level: Domains, *, most: int, weights: Weights) -> Sequence[Rows]:
    """Return the domains of a level that may hold the gang: the cheapest, then the tightest."""
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
    """Return the sum of the amounts in each domain, by its number."""
    return np.bincount(domains, weights=amounts).astype(np.int64)


def _fewest(domains: Domains, capacity: Counts, count: int) -> Counts:
    """Return how many nodes of each domain hold `count` members; each of the domains can."""
    base = int(capacity.max()) + 1
    keys = np.sort(domains * base + (base - 1 - capacity))  # by domain, the roomiest first
    sorted_domains, gaps = np.divmod(keys, base)
    filled = np.cumsum(base - 1 - gaps)
    starts = np.flatnonzero(np.diff(sorted_domains, prepend=-1))
    before = filled[starts] - (base - 1 - gaps[starts])
    fewest: Counts = np.searchsorted(filled, before + count) - starts + 1
    return fewest


def _core(
    gang: Gang, pool: Pool, domain: Rows, inner: Domains | None, *, most: int
) -> Iterator[Rows]:
    """Yield the fewest of a domain's inner domains that may hold the gang, if not all of it."""
    named = domain if inner is None else domain[inner[domain] >= 0]
    if inner is None or not len(named):
        return
    capacity = _sums(inner[named], pool.capacity[named])
    order = np.argsort(-capacity, kind="stable")
    last = int(np.searchsorted(np.cumsum(capacity[order]), len(gang.members)))
    core = named[np.isin(inner[named], order[: last + 1])]
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
    nodes, ranks, places, shares = np.unique(
        rows, return_index=True, return_inverse=True, return_counts=True
    )
    keys = [ranks]
    for level in reversed(levels):
        own = level[nodes]
        members = np.bincount(own + 1, weights=shares)[own + 1]
        keys += [own, -members]
    turn = np.empty(len(nodes), dtype=np.intp)
    turn[np.lexsort(keys)] = np.arange(len(nodes))
    ends = np.cumsum([batch.count for batch in gang.batches])
    sorted_ = [part[np.argsort(turn[part], kind="stable")] for part in np.split(places, ends[:-1])]
    moved: Rows = nodes[np.concatenate(sorted_)]
    return moved
