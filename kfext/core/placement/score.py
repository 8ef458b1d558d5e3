"""The preferences of placement: the score of a node, and the cost of spreading a gang over nodes.

All rules that prefer one node or division to another are here. A division is given by the number of
members on each node, the node counts: 6+6 and 10+2 divide twelve members over two nodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.columns import ASSUMED, Amounts
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Gang
from kfext.model.quantity import ON_EVERY_NODE

Rows = NDArray[np.intp]
Scores = NDArray[np.float64]
Ranking = Callable[[Rows], NDArray[np.int64]]
"""Returns a different number for each node, a row of the ledger; the lowest is the best."""

_STEPS = 10**9  # scores are compared in steps of 1e-9, because their sums are rounded
_BOUND = 1000.0  # the largest score that counts


def ranking(gang: Gang, ledger: Ledger) -> Ranking:
    """Return the order of preference among nodes; equal scores are ordered by node name.

    The tightest fit in GPUs and other extended resources is best, so that whole nodes stay free for
    jobs that need them; a gang without extended resources goes where the fewest are free. Among
    equal nodes, the least allocated CPU and memory is best, because pods that burst share the rest.
    Guaranteed pods cannot burst, so the tightest fit in CPU and memory is best for them.
    """

    def ranks(rows: Rows) -> NDArray[np.int64]:
        scores = np.clip(_scores(gang, ledger, rows), -_BOUND, _BOUND)
        steps = np.rint(scores * _STEPS).astype(np.int64)
        ranked: NDArray[np.int64] = ledger.name_order()[rows] - steps * len(ledger.nodes)
        return ranked

    return ranks


def _scores(gang: Gang, ledger: Ledger, rows: Rows) -> Scores:
    """Return a score per node; a higher score is better."""
    load = _load(gang, ledger, rows)
    by_load = load if gang.guaranteed else -load
    scarce = [name for name in gang.resources if name not in ON_EVERY_NODE] or ledger.extended
    if not scarce:
        return by_load
    requested = [[_requested(gang, name)] for name in scarce]
    after = ledger.free(scarce)[:, rows] - requested
    tightness: Scores = -_mean_fraction(after, ledger.allocatable(scarce)[:, rows])
    # Each rule decides between nodes that are equal by the rules before it.
    scores: Scores = tightness + 1e-6 * by_load
    if needs := {member.card.name: member.card for member in gang.members if member.card}:
        # Least fragmentation of GPUs precedes all other rules.
        cards = ledger.cards()
        harm: Scores = np.sum([cards.harm(needs[name])[rows] for name in sorted(needs)], axis=0)
        scores = -np.nan_to_num(harm, posinf=_BOUND) + 1e-3 * scores
    return scores


def _load(gang: Gang, ledger: Ledger, rows: Rows) -> Scores:
    """Return, per node, the mean fraction of CPU and memory in use if the gang ran there."""
    assumed = [[_requested(gang, name) + _assumed(gang, name)] for name in ASSUMED]
    after = ledger.scored_load()[:, rows] + assumed
    return _mean_fraction(after, ledger.allocatable(tuple(ASSUMED))[:, rows])


def _requested(gang: Gang, name: str) -> int:
    return int(gang.total[gang.resources.index(name)]) if name in gang.resources else 0


def _assumed(gang: Gang, name: str) -> int:
    """Return the total amount of a resource assumed for the members that do not request it."""
    if name not in gang.resources:
        return ASSUMED[name] * len(gang.members)
    number = gang.resources.index(name)
    without = sum(batch.count for batch in gang.batches if not batch.requests[number])
    return ASSUMED[name] * without


def _mean_fraction(amounts: Amounts, totals: Amounts) -> Scores:
    """Return the fraction of the totals, averaged over the resources."""
    fractions: Scores = (amounts / np.maximum(totals, 1)).sum(axis=0) / len(amounts)
    return fractions


Counts = NDArray[np.int64]
Costs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weights:
    """The costs of a division; 1.0 is the cost of using twice as many nodes.

    `crossing`: the cost of using more than one node, because members then talk over the network.
        It exceeds all other costs, so one node is best.
    `doubling`: the cost of using twice as many nodes, because the next job needs whole nodes.
    `lopsided`: the cost if the fullest node has twice an even count, because its link sets the pace
        of the job. At 10, kfext doubles the number of nodes rather than put one member more than an
        even count on a node, if that count is at most ten.
    `sharing`: the cost of having twice as many members behind the link of the fullest node. It is 0
        because the cost differs between models (in the measurements published with AdaptDL, 2+2
        takes 1.6 times as long as 1+1+1+1 for BERT, but the same time for ResNet-50 with large
        batches), while spreading always costs other jobs nodes. Set it where the cost is known.
    """

    crossing: float = 100.0
    doubling: float = 1.0
    lopsided: float = 10.0
    sharing: float = 0.0


DEFAULT = Weights()
FEWEST = Weights(doubling=1e6)
"""Weights for the fewest nodes: balance decides only between node sets of equal size."""

BALANCE = "the fullest node sets the pace of the job"
"""The reason for a balanced division."""


def costs(count: int, nodes: Counts, largest: Counts, *, weights: Weights = DEFAULT) -> Costs:
    """Return the costs of divisions, linear in the weights; the lowest is the best.

    Each division has `count` members on `nodes` nodes, at most `largest` on one node.
    """
    excess = largest / -(-count // nodes) - 1
    total: Costs = weights.crossing + weights.doubling * np.log2(nodes) + weights.lopsided * excess
    if weights.sharing:
        total += weights.sharing * np.log2(largest)
    total[nodes == 1] = 0.0
    return total


def cost(node_counts: Sequence[int], weights: Weights = DEFAULT) -> float:
    """Return the cost of a division; nodes without a member do not count."""
    used = [count for count in node_counts if count]
    nodes, largest = np.array([len(used)]), np.array([max(used)])
    return float(costs(sum(used), nodes, largest, weights=weights)[0])


def fullest(capacity: Counts, count: int, sizes: Counts) -> Counts:
    """Return, for each number of nodes in `sizes`, the fewest members that the fullest must take.

    `capacity`: the members that each node holds, largest first.
    `sizes`: numbers of nodes, each enough for `count` members.
    """
    filled = np.concatenate(([0], np.cumsum(capacity)))
    low, high = -(-count // sizes), np.full(len(sizes), min(int(capacity[0]), count))
    level = low  # an even count usually suffices
    while (low < high).any():
        above = np.minimum(np.searchsorted(-capacity, -level, side="right"), sizes)
        enough = level * above + filled[sizes] - filled[above] >= count
        low, high = np.where(enough, low, level + 1), np.where(enough, level, high)
        level = (low + high) // 2
    return low


def even_node_counts(capacity: Counts, count: int) -> Counts:
    """Return the most even node counts of `count` members that fit, the larger counts first.

    `capacity`: the members that each node holds, largest first.
    """
    size = np.array([len(capacity)])
    level = int(fullest(capacity, count, size)[0])
    node_counts = np.minimum(capacity, level)
    full = np.flatnonzero(node_counts == level)
    surplus = int(node_counts.sum()) - count
    node_counts[full[len(full) - surplus :]] -= 1
    return node_counts


def spread_reason(counts: Sequence[int], fewest: Sequence[int], *, why: str = BALANCE) -> str:
    """Return why a gang uses more nodes than it needs, in words, or an empty string."""
    if len(counts) <= len(fewest):
        return ""
    return (
        f"{len(counts)} nodes with {_each(counts)} instead of {len(fewest)} with {_each(fewest)}, "
        f"because {why}"
    )


def _each(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    pods = "pod" if high == 1 else "pods"
    return f"{low} {pods} each" if low == high else f"{low} to {high} {pods} each"
