"""Put the members of a gang on given nodes, one node after the other."""

from collections.abc import Callable, Sequence

import numpy as np

from kfext.core.placement.division import Counts
from kfext.core.placement.gang import Gang
from kfext.core.placement.pool import Pool
from kfext.core.placement.score import Ranking, Rows
from kfext.model.gang_terms import Exclusive


def fill(
    gang: Gang,
    pool: Pool,
    *,
    limit: Counts | int,
    order: Sequence[int] = (),
    partly: bool = False,
) -> Rows | None:
    """Return the position in the pool of each member, or None if not all of them fit.

    The nodes are filled in the order of the pool, with at most `limit` members each. A batch
    continues where the last one ended, so that consecutive ranks stay together, and then from the
    start. With an `order`, the batches are placed in it, each from the start (first fit). With
    `partly`, a member that does not fit has position -1 instead.
    """
    left = pool.free.copy()
    taken = np.zeros(len(pool.rows), dtype=np.int64)
    alone: list[set[Exclusive]] = [set() for _ in pool.rows]
    placed: dict[int, Rows] = {}
    current = 0
    for number in order or range(len(gang.batches)):
        batch = gang.batches[number]
        capacity = limit - taken
        for amounts, wanted in zip(left, batch.requests, strict=True):
            if wanted > 0:
                np.minimum(capacity, amounts // wanted, out=capacity)
        capacity[~pool.masks[number]] = 0
        wants = batch.constraints.exclusive
        if wants:
            capacity = np.minimum(capacity, [here.isdisjoint(wants) for here in alone])
        turn = np.roll(np.arange(len(capacity)), 0 if order else -current)
        filled = np.cumsum(np.maximum(capacity[turn], 0))
        count = min(batch.count, int(filled[-1])) if len(filled) else 0
        if count < batch.count and not partly:
            return None
        spots = turn[np.searchsorted(filled, np.arange(count), side="right")]
        counts = np.bincount(spots, minlength=len(capacity))
        left -= counts * batch.requests[:, None]
        taken += counts
        for at in np.unique(spots) if wants else ():
            alone[at].update(wants)
        current = int(spots[-1]) if count else current
        placed[number] = np.concatenate((spots, np.full(batch.count - count, -1)))
    return np.concatenate([placed[number] for number in range(len(gang.batches))])


def decreasing(gang: Gang, pool: Pool, *, ranking: Ranking) -> list[Rows]:
    """Return packings of unequal members: largest first, each on the first node that holds it.

    The nodes are sorted once from the emptiest to the fullest, and once the other way round (best
    fit, which leaves large gaps for large members).
    """
    most = np.maximum(pool.free.max(axis=1), 1)[:, None]
    roomy = (pool.free / most).sum(axis=0)
    ranks = ranking(pool.rows)
    largest = [(batch.requests[:, None] / most).max(initial=0) for batch in gang.batches]
    summed = [(batch.requests[:, None] / most).sum() for batch in gang.batches]
    found = []
    for turn in (np.lexsort((ranks, -roomy)), np.lexsort((ranks, roomy))):
        for sizes in (largest, summed):
            placed = fill(
                gang,
                pool.only(turn),
                limit=len(gang.members),
                order=sorted(range(len(sizes)), key=_descending(sizes)),
            )
            if placed is not None:
                found.append(turn[placed])
    return found


def _descending(sizes: Sequence[float]) -> Callable[[int], float]:
    return lambda number: -float(sizes[number])
