"""Divide a gang that no single node holds over the smallest good set of nodes.

Fewest nodes first; for that number of nodes, a balanced division (6+6 before 10+2) with
consecutive ranks together, because the slowest link sets the pace of an all-reduce.
A rule that makes one set of nodes better than another goes here.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kfext.core.gang import Gang
from kfext.core.ledger import Amounts, Mask
from kfext.core.score import Scores

_EXTRA = 8
"""How many nodes beyond the lower bound are tried one by one before the search doubles."""


def divide(
    gang: Gang, *, free: Amounts, masks: Sequence[Mask], order: Sequence[int], scores: Scores
) -> list[int] | None:
    """Return the row of each member, or None if the nodes of `order` cannot hold the gang.

    `free` has shape (resources, rows); `masks[m]` says which rows member m may use; `order` are
    the rows to choose from, best first.
    """
    if not order or not gang.members:
        return None
    room = _room(gang, free=free, masks=masks)
    rows = sorted(order, key=lambda row: -room[row])  # stable: equal room keeps the best first
    useful = [row for row in rows if room[row] > 0]
    count = len(gang.members)
    filled = np.cumsum([room[row] for row in useful])
    if not len(filled) or filled[-1] < count:
        return None
    fewest = int(np.searchsorted(filled, count)) + 1
    for size in _sizes(fewest, len(useful)):
        chosen = _even(useful, room=room, count=count, size=size, scores=scores)
        for limit in (-(-count // size), count):
            placed = _pack(gang, chosen, free=free, masks=masks, limit=limit)
            if placed is not None:
                return placed
    return None


def _sizes(fewest: int, most: int) -> Iterator[int]:
    """Yield set sizes to try: one by one near the lower bound, then doubling, the last `most`."""
    size = fewest
    while size < most:
        yield size
        size = size + 1 if size < fewest + _EXTRA else size * 2
    yield most


def _room(gang: Gang, *, free: Amounts, masks: Sequence[Mask]) -> NDArray[np.int64]:
    """Return an upper bound of how many members each row holds: by the smallest member."""
    smallest = gang.requests.min(axis=0)
    asked = smallest > 0
    if asked.any():
        each = np.maximum(free[asked], 0) // smallest[asked][:, None]
        bound: NDArray[np.int64] = each.min(axis=0)
    else:
        bound = np.full(free.shape[1], len(gang.members), dtype=np.int64)
    usable = np.logical_or.reduce(list({id(mask): mask for mask in masks}.values()))
    return np.where(usable, np.minimum(bound, len(gang.members)), 0)


def _even(
    useful: Sequence[int], *, room: NDArray[np.int64], count: int, size: int, scores: Scores
) -> list[int]:
    """Return `size` rows: those that can take an equal share, best first, else the roomiest."""
    share = -(-count // size)
    able = [row for row in useful if room[row] >= share]
    if len(able) >= size:
        return sorted(able, key=lambda row: -round(float(scores[row]), 9))[:size]
    return list(useful[:size])


def _pack(
    gang: Gang, rows: Sequence[int], *, free: Amounts, masks: Sequence[Mask], limit: int
) -> list[int] | None:
    """Fill the rows one after the other in rank order, at most `limit` members on each."""
    left = {row: free[:, row].copy() for row in rows}
    taken = dict.fromkeys(rows, 0)
    ports: dict[int, set[tuple[str, int]]] = {row: set() for row in rows}
    placed = []
    current = 0
    for number in range(len(gang.members)):
        wanted = gang.requests[number]
        own_ports = gang.members[number].constraints.host_ports
        # From the current node on, so that consecutive ranks stay together; then from the start.
        for step in range(len(rows)):
            row = rows[(current + step) % len(rows)]
            if (
                taken[row] < limit
                and masks[number][row]
                and (left[row] >= wanted).all()
                and ports[row].isdisjoint(own_ports)
            ):
                break
        else:
            return None
        current = (current + step) % len(rows)
        left[row] -= wanted
        taken[row] += 1
        ports[row].update(own_ports)
        placed.append(row)
    return placed
