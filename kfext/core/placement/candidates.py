"""The nodes that a gang may use: the same for the solver, for `still_fits` and the reservation."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from kfext.core.ledger.fit import Mask
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Batch, Gang, Limits


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of a ledger that a gang may use.

    `limits`: the limits, including the affinity of the pods themselves.
    `ledger`: the ledger in which the slots that the limits close are full.
    `occupied`: the ledger on which other pods count: `ledger`, or `ledger` without training jobs.
    `possible`: for each batch, the rows that its constraints and the limits allow.
    `open`: for each batch, the possible rows where no other pod has its exclusive ports and terms.
    """

    limits: Limits
    ledger: Ledger
    occupied: Ledger
    possible: Sequence[Mask]
    open: Sequence[Mask]


def candidates(
    gang: Gang,
    ledger: Ledger,
    limits: Limits,
    *,
    ignoring: Collection[Hashable] = (),
    ended: bool = False,
) -> Candidates:
    """Return the rows that a gang may use, regardless of their free capacity.

    `ignoring`: the claims of the gang itself, which do not exclude it.
    `ended`: whether all training jobs are assumed to have ended.
    """
    limits = limits.with_terms(batch.constraints for batch in gang.batches)
    per_node, ledger = limits.per_node, ledger.closing(limits.closed)
    excluded = [
        row
        for row, node in enumerate(ledger.nodes if per_node else ())
        if node and not all(limit.allows(node) for limit in per_node)
    ]
    possible = [_without(ledger.eligible(batch.constraints), excluded) for batch in gang.batches]
    occupied = ledger.without(lambda tier: tier.of_job) if ended else ledger
    return Candidates(
        limits=limits,
        ledger=ledger,
        occupied=occupied,
        possible=possible,
        open=[
            _beside_others(batch, occupied, mask, ignoring=ignoring)
            for batch, mask in zip(gang.batches, possible, strict=True)
        ],
    )


def _beside_others(
    batch: Batch, ledger: Ledger, mask: Mask, *, ignoring: Collection[Hashable]
) -> Mask:
    """Return a mask without the rows where other pods have exclusive ports or terms of the batch.

    If the batch has affinity to pods that exist, only their rows remain.
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
