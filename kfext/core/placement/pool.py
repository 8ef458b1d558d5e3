"""The nodes that a gang may use, and how many of its members each of them holds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kfext.core.ledger.columns import LARGEST, Amounts
from kfext.core.ledger.fit import Mask
from kfext.core.placement.division import Counts
from kfext.core.placement.gang import Batch, Gang
from kfext.core.placement.score import Rows


@dataclass(frozen=True, slots=True)
class Pool:
    """The rows of the ledger that can hold at least one member.

    `rows`: their numbers in the ledger.
    `free`: the free amounts, shape (resources, rows).
    `masks`: `masks[b]` marks the rows that batch b may use.
    `holds`: `holds[b]` is how many members of batch b alone each row holds.
    `capacity`: how many members each row holds; exact if all members are equal, else an upper
        bound by the smallest member.
    """

    rows: Rows
    free: Amounts
    masks: Sequence[Mask]
    holds: Sequence[Counts]
    capacity: Counts

    def only(self, spots: Rows) -> "Pool":
        """Return the pool of some of the rows, given as positions in it."""
        capacity = self.capacity[spots]
        return Pool(
            rows=self.rows[spots],
            free=self.free[:, spots],
            masks=[mask[spots] for mask in self.masks],
            holds=[capacity if each is self.capacity else each[spots] for each in self.holds],
            capacity=capacity,
        )

    def may_hold(self, gang: Gang) -> bool:
        """Return whether the pool passes the simple necessary checks for the gang."""
        return all(
            int(capacity.sum()) >= count
            for capacity, count in (
                (self.capacity, len(gang.members)),
                *zip(self.holds, (batch.count for batch in gang.batches), strict=True),
            )
        )


def pool(gang: Gang, *, free: Amounts, masks: Sequence[Mask]) -> Pool:
    """Return the pool within `free`, shape (resources, rows), and the masks of the batches."""
    holds = [
        _holds(batch, free, mask, most=batch.count)
        for batch, mask in zip(gang.batches, masks, strict=True)
    ]
    capacity = holds[0] if len(holds) == 1 else _capacity(gang, free, masks)
    whole = Pool(np.arange(free.shape[1]), free, masks, holds, capacity)
    return whole.only(np.flatnonzero(capacity))


def _holds(batch: Batch, free: Amounts, mask: Mask, *, most: int) -> Counts:
    """Return how many members of a batch each row holds, at most `most`."""
    capacity = np.full(free.shape[1], 1 if batch.constraints.exclusive else most, dtype=np.int64)
    return _limited(capacity, batch.requests, free, mask)


def _capacity(gang: Gang, free: Amounts, masks: Sequence[Mask]) -> Counts:
    """Return an upper bound of how many members each row holds, by the smallest member."""
    smallest = np.min([batch.requests for batch in gang.batches], axis=0)
    most = len(gang.members) - max(gang.one_each - 1, 0)
    capacity = np.full(free.shape[1], most, dtype=np.int64)
    return _limited(capacity, smallest, free, np.logical_or.reduce(masks))


def _limited(capacity: Counts, requests: Counts, free: Amounts, mask: Mask) -> Counts:
    """Return how many times the requests fit each row, at most `capacity` times."""
    capacity *= mask
    for amounts, wanted in zip(free, requests, strict=True):
        if wanted > 0:
            np.minimum(capacity, LARGEST // wanted, out=capacity)  # so that the product has 64 bits
            short = np.flatnonzero(amounts < capacity * wanted)  # few, and a division is slow
            capacity[short] = np.minimum(capacity[short], amounts[short] // wanted)
    return np.maximum(capacity, 0, out=capacity)
