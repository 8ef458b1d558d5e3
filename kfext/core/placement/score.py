"""Which of the eligible nodes is best for a gang, or for its share of a node set.

A rule that makes one node better than another goes here.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.columns import ASSUMED, Amounts
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Gang
from kfext.model.quantity import COMMON, Resources

Rows = NDArray[np.intp]
Scores = NDArray[np.float64]
Ranking = Callable[[Rows], NDArray[np.int64]]
"""Returns a number per given row, lowest for the best; no two rows have the same."""

_STEPS = 10**9  # scores that differ by less are equal, whatever the rounding of their sums
_BOUND = 1000.0


def ranking(gang: Gang, ledger: Ledger, *, assumed: Resources) -> Ranking:
    """Return the order of preference among rows; equal scores go by node name.

    A pod that requests no CPU or memory counts as `assumed`, which an administrator may set.

    For GPUs and other extended resources the tightest fit is best, so that whole nodes stay free
    for jobs that need them. For CPU and memory the least allocated node is best, because pods that
    may burst share what is left; but if all pods are Guaranteed, they cannot burst, and the
    tightest fit is best again.
    """

    def ranks(rows: Rows) -> NDArray[np.int64]:
        scores = np.clip(_scores(gang, ledger, rows, assumed), -_BOUND, _BOUND)
        steps = np.rint(scores * _STEPS).astype(np.int64)
        ranked: NDArray[np.int64] = ledger.name_order()[rows] - steps * len(ledger.nodes)
        return ranked

    return ranks


def _scores(gang: Gang, ledger: Ledger, rows: Rows, assumed: Resources) -> Scores:
    """Return a score per given row, higher is better."""
    scarce = [name for name in gang.resources if name not in COMMON]
    load = _load(gang, ledger, rows, assumed)
    if needs := {member.card.name: member.card for member in gang.members if member.card}:
        # Parts of GPUs go where they break up least: that decides before all else.
        cards = ledger.cards()
        harm: Scores = np.sum([cards.harm(needs[name])[rows] for name in sorted(needs)], axis=0)
        harmless: Scores = -np.nan_to_num(harm, posinf=_BOUND) - 1e-6 * load
        return harmless
    if scarce:
        columns = [gang.resources.index(name) for name in scarce]
        left = ledger.free(scarce)[:, rows] - gang.total[columns][:, None]
        tightness: Scores = -_share(left, ledger.allocatable(scarce)[:, rows])
        # Nodes equal on scarce resources go by load; its weight never outweighs those.
        return tightness - 1e-6 * load
    return load if gang.guaranteed else -load


def _load(gang: Gang, ledger: Ledger, rows: Rows, assumed: Resources) -> Scores:
    """Return the mean share of CPU and memory in use with the gang on the node."""
    wanted = [[_wanted(gang, name, assumed.get(name, ASSUMED[name]))] for name in ASSUMED]
    after = ledger.scored_load()[:, rows] + wanted
    return _share(after, ledger.allocatable(tuple(ASSUMED))[:, rows])


def _wanted(gang: Gang, name: str, assumed: int) -> int:
    """Return the request of all members; one that does not request the resource has `assumed`."""
    if name not in gang.resources:
        return assumed * len(gang.members)
    number = gang.resources.index(name)
    return int(gang.total[number]) + sum(
        assumed * batch.count for batch in gang.batches if not batch.requests[number]
    )


def _share(amounts: Amounts, of: Amounts) -> Scores:
    """Return the mean share that the amounts are of `of`, over the resources."""
    shares: Scores = (amounts / np.maximum(of, 1)).sum(axis=0) / len(amounts)
    return shares
