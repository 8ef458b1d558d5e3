"""The nodes that a gang may use: one answer for the solver, the barrier and the reservation."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from kfext.core.ledger.fit import Mask
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Batch, Gang, Limits


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of a ledger that a gang may use.

    `limits`: the limits, including the terms of the pods themselves.
    `ledger`: the ledger without the slots that the limits close.
    `occupied`: the same ledger, or as if all training jobs had ended.
    `possible`: by batch, the rows that its constraints and the limits allow.
    `open`: by batch, the possible rows where no other pod has its exclusive ports and terms.
    """

    limits: Limits
    ledger: Ledger
    occupied: Ledger
    possible: Sequence[Mask]
    open: Sequence[Mask]


def candidates(
    wanted: Gang,
    ledger: Ledger,
    limits: Limits,
    *,
    ignoring: Collection[Hashable] = (),
    ended: bool = False,
) -> Candidates:
    """Return the rows that a gang may use, regardless of their free capacity.

    `ignoring`: claims of the gang itself.
    `ended`: whether all training jobs count as ended.
    """
    limits = limits.with_terms(batch.constraints for batch in wanted.batches)
    per_node, ledger = limits.per_node, ledger.closing(limits.closed)
    shut = [
        row
        for row, node in enumerate(ledger.nodes if per_node else ())
        if node and not all(limit.allows(node) for limit in per_node)
    ]
    possible = [_without(ledger.eligible(batch.constraints), shut) for batch in wanted.batches]
    occupied = ledger.without(lambda tier: tier.of_job) if ended else ledger
    return Candidates(
        limits=limits,
        ledger=ledger,
        occupied=occupied,
        possible=possible,
        open=[
            _beside_others(batch, occupied, mask, ignoring=ignoring)
            for batch, mask in zip(wanted.batches, possible, strict=True)
        ],
    )


def _beside_others(
    batch: Batch, ledger: Ledger, mask: Mask, *, ignoring: Collection[Hashable]
) -> Mask:
    """Return a mask without the rows where other pods have exclusive ports or terms of the batch.

    If the batch has affinity to certain pods, only the rows of these pods remain.
    """
    taken = ledger.rows_with_any(batch.constraints.exclusive, ignoring=ignoring)
    mask, together = _without(mask, taken), batch.constraints.together
    if together and (rows := ledger.rows_with_any(together, ignoring=ignoring)):
        return mask & np.isin(np.arange(len(mask)), rows)
    return mask


def _without(mask: Mask, rows: Sequence[int]) -> Mask:
    if not rows:
        return mask
    mask = mask.copy()
    mask[rows] = False
    return mask
