"""Divide a gang that no single node holds over the smallest good set of nodes.

Fewest nodes first; for that number of nodes, a balanced division (6+6 before 10+2) with
consecutive ranks together, because the slowest link sets the pace of an all-reduce.
A rule that makes one set of nodes better than another goes here.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kfext.core.eligible import Mask
from kfext.core.gang import Batch, Gang
from kfext.core.ledger import Amounts
from kfext.core.score import Ranking, Rows

Counts = NDArray[np.int64]

_EXTRA = 8
"""How many nodes beyond the lower bound are tried one by one before the search doubles."""


def divide(gang: Gang, *, free: Amounts, masks: Sequence[Mask], ranking: Ranking) -> Rows | None:
    """Return the row of each member, or None if no set of nodes was found to hold the gang.

    `free` has shape (resources, rows); `masks[b]` says which rows batch b may use.
    """
    room = _room(gang, free=free, masks=masks)
    useful = np.flatnonzero(room)
    if room.sum() < len(gang.members):
        return None
    found = _balanced(gang, useful, room=room, free=free, masks=masks, ranking=ranking)
    if len(gang.batches) == 1:
        return found
    # Members that differ: what is balanced may be missed, or take more nodes than it should.
    other = _decreasing(gang, useful, free=free, masks=masks, ranking=ranking)
    if found is None or (other is not None and _nodes(other) < _nodes(found)):
        return other
    return found


def _balanced(
    gang: Gang,
    useful: Rows,
    *,
    room: Counts,
    free: Amounts,
    masks: Sequence[Mask],
    ranking: Ranking,
) -> Rows | None:
    """Return an even division over the fewest of the `useful` rows for which one is found."""
    count = len(gang.members)
    filled = np.cumsum(np.sort(room[useful])[::-1])
    fewest = int(np.searchsorted(filled, count)) + 1
    for size in _sizes(fewest, len(useful)):
        chosen = _even(useful, room=room, count=count, size=size, ranking=ranking)
        for limit in (-(-count // size), count):
            placed = _pack(gang.batches, chosen, free=free, masks=masks, limit=limit)
            if placed is not None:
                return placed
    return None


def _nodes(placed: Rows) -> int:
    return len(np.unique(placed))


def _sizes(fewest: int, most: int) -> Iterator[int]:
    """Yield set sizes to try: one by one near the lower bound, then doubling, the last `most`."""
    size = fewest
    while size < most:
        yield size
        size = size + 1 if size < fewest + _EXTRA else size * 2
    yield most


def _room(gang: Gang, *, free: Amounts, masks: Sequence[Mask]) -> Counts:
    """Return an upper bound of how many members each row holds: by the smallest member."""
    smallest = np.min([batch.requests for batch in gang.batches], axis=0)
    room = np.full(free.shape[1], len(gang.members), dtype=np.int64)
    for amounts, wanted in zip(free, smallest, strict=True):
        if wanted > 0:
            np.minimum(room, amounts // wanted, out=room)
    room[~np.logical_or.reduce(masks)] = 0
    return np.maximum(room, 0, out=room)


def _even(useful: Rows, *, room: Counts, count: int, size: int, ranking: Ranking) -> Rows:
    """Return `size` rows: those that can take an equal share, best first, else the roomiest."""
    able = useful[room[useful] >= -(-count // size)]
    if len(able) >= size:
        ranks = ranking(able)
        best = np.argpartition(ranks, size - 1)[:size]
        chosen: Rows = able[best[np.argsort(ranks[best])]]
        return chosen
    least = np.partition(room[useful], len(useful) - size)[len(useful) - size]
    roomy = useful[room[useful] >= least]
    roomiest: Rows = roomy[np.lexsort((ranking(roomy), -room[roomy]))[:size]]
    return roomiest


def _pack(
    batches: Sequence[Batch],
    rows: Rows,
    *,
    free: Amounts,
    masks: Sequence[Mask],
    limit: int,
    first_fit: bool = False,
) -> Rows | None:
    """Fill the rows one after the other, at most `limit` members on each; None if they are full.

    A batch goes on where the last one ended, so that consecutive ranks stay together, and then
    from the start; with `first_fit` at once from the start.
    """
    left = free[:, rows]
    taken = np.zeros(len(rows), dtype=np.int64)
    ports: list[set[tuple[str, int]]] = [set() for _ in rows]
    placed = []
    current = 0
    for batch, mask in zip(batches, masks, strict=True):
        room = limit - taken
        for amounts, wanted in zip(left, batch.requests, strict=True):
            if wanted > 0:
                np.minimum(room, amounts // wanted, out=room)
        room[~mask[rows]] = 0
        wants = batch.constraints.host_ports
        if wants:
            room = np.minimum(room, [ports[at].isdisjoint(wants) for at in range(len(rows))])
        turn = np.roll(np.arange(len(rows)), 0 if first_fit else -current)
        filled = np.cumsum(np.maximum(room[turn], 0))
        if filled[-1] < batch.count:
            return None
        spots = turn[np.searchsorted(filled, np.arange(batch.count), side="right")]
        counts = np.bincount(spots, minlength=len(rows))
        left -= counts * batch.requests[:, None]
        taken += counts
        for at in np.unique(spots) if wants else ():
            ports[at].update(wants)
        current = int(spots[-1])
        placed.append(rows[spots])
    return np.concatenate(placed)


def _decreasing(
    gang: Gang, rows: Rows, *, free: Amounts, masks: Sequence[Mask], ranking: Ranking
) -> Rows | None:
    """Fill the rows, the roomiest first, with the largest members first, each where it fits."""
    most = np.maximum(free[:, rows].max(axis=1), 1)[:, None]
    rows = rows[np.lexsort((ranking(rows), -(free[:, rows] / most).sum(axis=0)))]
    shares = [float((batch.requests[:, None] / most).max(initial=0)) for batch in gang.batches]
    order = sorted(range(len(shares)), key=lambda number: -shares[number])
    packed = _pack(
        [gang.batches[number] for number in order],
        rows,
        free=free,
        masks=[masks[number] for number in order],
        limit=len(gang.members),
        first_fit=True,
    )
    if packed is None:
        return None
    ends = np.cumsum([gang.batches[number].count for number in order])
    parts = dict(zip(order, np.split(packed, ends[:-1]), strict=True))
    return np.concatenate([parts[number] for number in range(len(order))])
