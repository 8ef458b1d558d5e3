"""The nodes that a gang may use, and ways to assign its members to them.

`fill` fills the nodes in their order; `decreasing` places unequal members by size. `searched` is
the last resort for unequal members: it tries divisions one by one, within a bound. A position is
the index of a row in a pool.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate

import numpy as np

from kfext.core.ledger.columns import LARGEST, Amounts
from kfext.core.ledger.fit import Mask
from kfext.core.placement.gang import Batch, Gang
from kfext.core.placement.score import Counts, Ranking, Rows
from kfext.model.gang_terms import Exclusive


@dataclass(frozen=True, slots=True)
class Pool:
    """The rows of the ledger that can hold at least one member.

    `rows`: the indexes of the rows in the ledger.
    `free`: the free amounts, shape (resources, rows).
    `masks`: `masks[b]` marks the rows that batch b may use.
    `holds`: `holds[b]` has the number of members of batch b that each row holds without others.
    `capacity`: the number of members that each row holds; exact if all members are equal, else an
        upper bound, as if all were as small as the smallest.
    `max_nodes`: the most rows that the gang may use.
    """

    rows: Rows
    free: Amounts
    masks: Sequence[Mask]
    holds: Sequence[Counts]
    capacity: Counts
    max_nodes: int

    def only(self, spots: Rows) -> "Pool":
        """Return the pool of the rows at these positions."""
        capacity = self.capacity[spots]
        return Pool(
            rows=self.rows[spots],
            free=self.free[:, spots],
            masks=[mask[spots] for mask in self.masks],
            holds=[capacity if each is self.capacity else each[spots] for each in self.holds],
            capacity=capacity,
            max_nodes=self.max_nodes,
        )

    def allows(self, spots: Rows) -> bool:
        """Return whether the gang may use as many nodes as there are different `spots`."""
        return self.max_nodes >= len(self.rows) or len(np.unique(spots)) <= self.max_nodes

    def may_hold(self, gang: Gang) -> bool:
        """Return whether the pool passes simple checks that are necessary to hold the gang."""
        return all(
            self._total(capacity) >= count
            for capacity, count in (
                (self.capacity, len(gang.members)),
                *zip(self.holds, (batch.count for batch in gang.batches), strict=True),
            )
        )

    def _total(self, capacity: Counts) -> int:
        """Return the number of members that the `max_nodes` largest rows hold together."""
        if (small := len(capacity) - self.max_nodes) > 0:
            capacity = np.partition(capacity, small)[small:]
        return int(capacity.sum())


def pool(gang: Gang, *, free: Amounts, masks: Sequence[Mask], max_nodes: int | None = None) -> Pool:
    """Return the pool within `free`, shape (resources, rows), and the masks of the batches.

    `max_nodes`: the most rows that the gang may use; None means any number.
    """
    holds = [
        _holds(batch, free, mask, most=batch.count)
        for batch, mask in zip(gang.batches, masks, strict=True)
    ]
    capacity = holds[0] if len(holds) == 1 else _capacity(gang, free, masks)
    row_count = free.shape[1]
    whole = Pool(
        rows=np.arange(row_count),
        free=free,
        masks=masks,
        holds=holds,
        capacity=capacity,
        max_nodes=row_count if max_nodes is None else max_nodes,
    )
    return whole.only(np.flatnonzero(capacity))


def _holds(batch: Batch, free: Amounts, mask: Mask, *, most: int) -> Counts:
    """Return the number of members of a batch that each row holds, at most `most`."""
    capacity = np.full(free.shape[1], 1 if batch.constraints.exclusive else most, dtype=np.int64)
    return _limited(capacity, batch.requests, free, mask)


def _capacity(gang: Gang, free: Amounts, masks: Sequence[Mask]) -> Counts:
    """Return an upper bound of the members that each row holds, as if all were the smallest."""
    smallest = np.min([batch.requests for batch in gang.batches], axis=0)
    most = len(gang.members) - max(gang.max_anti_affine - 1, 0)
    capacity = np.full(free.shape[1], most, dtype=np.int64)
    return _limited(capacity, smallest, free, np.logical_or.reduce(masks))


def _limited(capacity: Counts, requests: Counts, free: Amounts, mask: Mask) -> Counts:
    """Return the number of times that the requests fit each row, at most `capacity` times."""
    capacity *= mask
    for amounts, wanted in zip(free, requests, strict=True):
        if wanted > 0:
            np.minimum(capacity, LARGEST // wanted, out=capacity)  # so that the product has 64 bits
            short = np.flatnonzero(amounts < capacity * wanted)  # few rows: a division is slow
            capacity[short] = np.minimum(capacity[short], amounts[short] // wanted)
    return np.maximum(capacity, 0, out=capacity)


def fill(
    gang: Gang, pool: Pool, *, limit: Counts | int, order: Sequence[int] = (), partly: bool = False
) -> Rows | None:
    """Return the position of each member, or None: there is not enough capacity for all.

    The nodes are filled in the order of the pool, with at most `limit` members each. A batch begins
    where the batch before it ended, so that consecutive ranks stay together, and continues from the
    start of the pool. With an `order` of batches, they are placed in it, each from the start of the
    pool (first fit). With `partly`, a member that does not fit has position -1.
    """
    free = pool.free.copy()
    taken = np.zeros(len(pool.rows), dtype=np.int64)
    terms_on: list[set[Exclusive]] = [set() for _ in pool.rows]
    placed: dict[int, Rows] = {}
    current = 0
    for number in order or range(len(gang.batches)):
        batch = gang.batches[number]
        capacity = limit - taken
        for amounts, wanted in zip(free, batch.requests, strict=True):
            if wanted > 0:
                np.minimum(capacity, amounts // wanted, out=capacity)
        capacity[~pool.masks[number]] = 0
        exclusive = batch.constraints.exclusive
        if exclusive:
            capacity = np.minimum(capacity, [terms.isdisjoint(exclusive) for terms in terms_on])
        rotation = np.roll(np.arange(len(capacity)), 0 if order else -current)
        filled = np.cumsum(np.maximum(capacity[rotation], 0))
        count = min(batch.count, int(filled[-1])) if len(filled) else 0
        if count < batch.count and not partly:
            return None
        spots = rotation[np.searchsorted(filled, np.arange(count), side="right")]
        counts = np.bincount(spots, minlength=len(capacity))
        free -= counts * batch.requests[:, None]
        taken += counts
        for spot in np.unique(spots) if exclusive else ():
            terms_on[spot].update(exclusive)
        current = int(spots[-1]) if count else current
        placed[number] = np.concatenate((spots, np.full(batch.count - count, -1)))
    return np.concatenate([placed[number] for number in range(len(gang.batches))])


def decreasing(gang: Gang, pool: Pool, *, ranking: Ranking) -> list[Rows]:
    """Return packings of unequal members: largest first, each on the first node that holds it.

    The nodes are sorted once from the emptiest to the fullest, and once from the fullest to the
    emptiest (best fit, which preserves large gaps for large members).
    """
    most = np.maximum(pool.free.max(axis=1), 1)[:, None]
    emptiness = (pool.free / most).sum(axis=0)
    ranks = ranking(pool.rows)
    largest = [(batch.requests[:, None] / most).max(initial=0) for batch in gang.batches]
    sums = [(batch.requests[:, None] / most).sum() for batch in gang.batches]
    packings = []
    for sequence in (np.lexsort((ranks, -emptiness)), np.lexsort((ranks, emptiness))):
        for sizes in (largest, sums):
            placed = fill(
                gang,
                pool.only(sequence),
                limit=len(gang.members),
                order=sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True),
            )
            if placed is not None:
                packings.append(sequence[placed])
    return packings


_STEPS = 5000
"""The most nodes that a search examines: about 10 ms."""
_DEPTH = 400
"""The most batches times nodes in a search, which leaves out the nodes with the least capacity."""


@dataclass(slots=True)
class Bound:
    """The number of nodes that all searches with this bound may still examine."""

    left: int = _STEPS


def searched(
    gang: Gang,
    pool: Pool,
    *,
    ranking: Ranking,
    sizes: Sequence[int] | None = None,
    bound: Bound | None = None,
) -> Rows | None:
    """Return the position of each member, or None: no placement was found within the bound.

    `sizes`: limits on the number of nodes, tried in this order; by default the gang's own limit.
    `bound`: the bound that the searches of all sizes share; by default a new one.
    In a small pool the search is complete: it finds a placement within a limit if there is one.
    """
    bound = bound or Bound()
    batches = gang.batches
    total_free = np.maximum(pool.free, 0).sum(axis=1, dtype=np.float64)
    if (total_free * (1 + 1e-9) < gang.total).any():  # the usual case; floats do not overflow
        return None
    most = np.maximum(pool.free.max(axis=1), 1)[:, None]
    spots = np.lexsort((ranking(pool.rows), -(pool.free / most).sum(axis=0)))
    spots = spots[: _DEPTH // len(batches)]
    if not len(spots):
        return None
    fractions = [float((batch.requests[:, None] / most).max(initial=0)) for batch in batches]
    order = sorted(range(len(fractions)), key=fractions.__getitem__, reverse=True)
    search = _Search(gang, pool.only(spots), order, most_steps=bound.left)
    success = any(
        search.place_all(size)
        for size in ([min(len(spots), pool.max_nodes)] if sizes is None else sizes)
        if search.steps <= search.most_steps
    )
    bound.left -= search.steps
    if not success:
        return None
    return np.concatenate([np.repeat(spots, search.placed[number]) for number in range(len(order))])


class _Search:
    """A depth-first search over the batches in the given order and, within a batch, over the nodes.

    `placed[b][n]` is the number of members of batch b on node n, `members[n]` their number over all
    batches, and `free[n]` the free capacity there. `used` is the number of nodes with members, at
    most `most_nodes`. A failed search changes only `steps`, which exceeds `most_steps` by little.
    """

    def __init__(self, gang: Gang, pool: Pool, order: Sequence[int], *, most_steps: int) -> None:
        self.most_steps = most_steps
        self.batches = gang.batches
        self.requests = [batch.requests.tolist() for batch in gang.batches]
        self.masks = [mask.tolist() for mask in pool.masks]
        self.order = order
        self.free: list[list[int]] = pool.free.T.tolist()
        self.terms_on: list[set[Exclusive]] = [set() for _ in self.free]
        self.placed = [[0] * len(self.free) for _ in gang.batches]
        self.members = [0] * len(self.free)
        self.used = self.most_nodes = self.steps = 0

    def place_all(self, most_nodes: int) -> bool:
        """Place all batches on at most this many nodes; return whether they fit."""
        self.most_nodes = most_nodes
        return self._place_batch(0)

    def _place_batch(self, depth: int) -> bool:
        if depth == len(self.order):
            return True
        number = self.order[depth]
        capacity = [self._capacity(number, node) for node in range(len(self.free))]
        self.steps += len(capacity)
        count = self.batches[number].count
        if sum(nlargest(self.most_nodes, capacity)) < count:
            return False
        kinds = [self._kind(node) for node in range(len(self.free))]
        after = [0, *accumulate(reversed(capacity))][-2::-1]
        return self._spread(depth, 0, count, nodes=list(zip(capacity, after, kinds, strict=True)))

    def _spread(
        self, depth: int, at: int, count: int, *, nodes: list[tuple[int, int, Hashable]]
    ) -> bool:
        """Place `count` members of a batch on the nodes from index `at`, then the other batches.

        `nodes` has for each node the number of members that it holds, the number that all later
        nodes hold, and its kind.
        """
        if not count:
            return self._place_batch(depth + 1)
        placed = self.placed[self.order[depth]]
        capacity, after, kind = nodes[at]
        most = min(capacity, count)
        if at and kind == nodes[at - 1][2]:  # of equal nodes, the first gets the most members
            most = min(most, placed[at - 1])
        for members in range(most, max(count - after, 0) - 1, -1):
            self.steps += 1
            if self.steps > self.most_steps:
                return False
            if members and not (self.members[at] or self.used < self.most_nodes):
                continue
            self._book(self.order[depth], at, members)
            if self._spread(depth, at + 1, count - members, nodes=nodes):
                return True
            self._book(self.order[depth], at, -members)
        return False

    def _capacity(self, number: int, node: int) -> int:
        """Return the number of members of a batch that a node holds now."""
        if not self.masks[number][node]:
            return 0
        most, exclusive = self.batches[number].count, self.batches[number].constraints.exclusive
        if exclusive:
            most = int(self.terms_on[node].isdisjoint(exclusive))
        for amount, wanted in zip(self.free[node], self.requests[number], strict=True):
            if wanted > 0:
                most = min(most, amount // wanted)
        return max(most, 0)

    def _kind(self, node: int) -> Hashable:
        """Return a key that is equal for interchangeable nodes."""
        masks = tuple(mask[node] for mask in self.masks)
        return tuple(self.free[node]), masks, frozenset(self.terms_on[node])

    def _book(self, number: int, node: int, added: int) -> None:
        self.placed[number][node] += added
        self.used -= self.members[node] > 0
        self.members[node] += added
        self.used += self.members[node] > 0
        exclusive = self.batches[number].constraints.exclusive
        if added > 0:
            self.terms_on[node].update(exclusive)
        elif added < 0:
            self.terms_on[node].difference_update(exclusive)
        for resource, wanted in enumerate(self.requests[number]):
            self.free[node][resource] -= added * wanted
