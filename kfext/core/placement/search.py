"""The last resort for a gang of unequal pods: try divisions one by one, within a bound."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate

import numpy as np

from kfext.core.placement.gang import Gang
from kfext.core.placement.pool import Pool
from kfext.core.placement.score import Ranking, Rows
from kfext.model.gang_terms import Exclusive

_STEPS = 5000
"""How many nodes are examined before the search gives up: some 10 ms."""
_DEPTH = 400
"""The most batches times nodes of a search; only the nodes with the most capacity take part."""


@dataclass(slots=True)
class Bound:
    """How many nodes may be examined in searches that have one bound together."""

    left: int = _STEPS


def searched(
    gang: Gang,
    pool: Pool,
    *,
    ranking: Ranking,
    sizes: Sequence[int] | None = None,
    bound: Bound | None = None,
) -> Rows | None:
    """Return the position in the pool of each member, or None if none was found within the bound.

    `sizes`: how many nodes may be used at most, tried in this order; None: all of them.
    For small pools the search is complete: it finds a placement on so many nodes if there is one.
    The bound is one for all sizes; None: one of its own.
    """
    bound = bound or Bound()
    batches = gang.batches
    in_all = np.maximum(pool.free, 0).sum(axis=1, dtype=np.float64)
    if (in_all * (1 + 1e-9) < gang.total).any():  # the usual case; a float, so that it has room
        return None
    most = np.maximum(pool.free.max(axis=1), 1)[:, None]
    turn = np.lexsort((ranking(pool.rows), -(pool.free / most).sum(axis=0)))
    turn = turn[: _DEPTH // len(batches)]
    if not len(turn):
        return None
    shares = [float((batch.requests[:, None] / most).max(initial=0)) for batch in batches]
    order = sorted(range(len(shares)), key=lambda number: -shares[number])
    search = _Search(gang, pool.only(turn), order, most_steps=bound.left)
    found = any(
        search.finds(size)
        for size in ([len(turn)] if sizes is None else sizes)
        if search.steps <= search.most_steps
    )
    bound.left -= search.steps
    if not found:
        return None
    return np.concatenate([np.repeat(turn, search.shares[number]) for number in range(len(order))])


class _Search:
    """A depth-first search over the batches in the given order and, within a batch, over the nodes.

    `shares[b][n]` is how many members of batch b node n has, `members[n]` how many of all batches;
    `left[n]` is what is free there. `used` nodes have any, and `most_nodes` may have. After a
    search that found nothing all is as before it but for the `steps`, of which there are few more
    than `most_steps`.
    """

    def __init__(self, gang: Gang, pool: Pool, order: Sequence[int], *, most_steps: int) -> None:
        self.most_steps = most_steps
        self.batches = gang.batches
        self.requests = [batch.requests.tolist() for batch in gang.batches]
        self.masks = [mask.tolist() for mask in pool.masks]
        self.order = order
        self.left: list[list[int]] = pool.free.T.tolist()
        self.alone: list[set[Exclusive]] = [set() for _ in self.left]
        self.shares = [[0] * len(self.left) for _ in gang.batches]
        self.members = [0] * len(self.left)
        self.used = self.most_nodes = self.steps = 0

    def finds(self, most_nodes: int) -> bool:
        """Place all batches on at most so many nodes; return whether they fit."""
        self.most_nodes = most_nodes
        return self._batch(0)

    def _batch(self, depth: int) -> bool:
        """Place the batches from `depth` on; return whether they all fit."""
        if depth == len(self.order):
            return True
        number = self.order[depth]
        capacity = [self._capacity(number, node) for node in range(len(self.left))]
        self.steps += len(capacity)
        count = self.batches[number].count
        if sum(nlargest(self.most_nodes, capacity)) < count:
            return False
        kinds = [self._kind(node) for node in range(len(self.left))]
        after = [0, *accumulate(reversed(capacity))][-2::-1]
        return self._node(depth, 0, count, nodes=list(zip(capacity, after, kinds, strict=True)))

    def _node(
        self, depth: int, at: int, count: int, *, nodes: list[tuple[int, int, Hashable]]
    ) -> bool:
        """Place `count` members of a batch on the nodes from `at` on, then the other batches.

        `nodes` has for each node: how many it holds, how many all nodes after it hold, its kind.
        """
        if not count:
            return self._batch(depth + 1)
        shares = self.shares[self.order[depth]]
        capacity, after, kind = nodes[at]
        most = min(capacity, count)
        if at and kind == nodes[at - 1][2]:  # of equal nodes the first has the most
            most = min(most, shares[at - 1])
        for share in range(most, max(count - after, 0) - 1, -1):
            self.steps += 1
            if self.steps > self.most_steps:
                return False
            if share and not (self.members[at] or self.used < self.most_nodes):
                continue
            self._book(self.order[depth], at, share)
            if self._node(depth, at + 1, count - share, nodes=nodes):
                return True
            self._book(self.order[depth], at, -share)
        return False

    def _capacity(self, number: int, node: int) -> int:
        """Return how many members of a batch a node holds now."""
        if not self.masks[number][node]:
            return 0
        most, wants = self.batches[number].count, self.batches[number].constraints.exclusive
        if wants:
            most = int(self.alone[node].isdisjoint(wants))
        for amount, wanted in zip(self.left[node], self.requests[number], strict=True):
            if wanted > 0:
                most = min(most, amount // wanted)
        return max(most, 0)

    def _kind(self, node: int) -> Hashable:
        """Return what must be equal for two nodes to be interchangeable."""
        masks = tuple(mask[node] for mask in self.masks)
        return tuple(self.left[node]), masks, frozenset(self.alone[node])

    def _book(self, number: int, node: int, share: int) -> None:
        self.shares[number][node] += share
        self.used -= self.members[node] > 0
        self.members[node] += share
        self.used += self.members[node] > 0
        wants = self.batches[number].constraints.exclusive
        if share > 0:
            self.alone[node].update(wants)
        elif share < 0:
            self.alone[node].difference_update(wants)
        for resource, wanted in enumerate(self.requests[number]):
            self.left[node][resource] -= share * wanted
