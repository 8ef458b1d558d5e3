"""Which of the possible nodes is best for a gang, or for its share of a node set.

A rule that makes one node better than another goes here.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.columns import ASSUMED, Amounts
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Gang
from kfext.model.quantity import CPU, MEMORY, PODS, Resources

COMMON = frozenset({CPU, MEMORY, PODS, "ephemeral-storage"})
"""Resources that every node has; all others, such as GPUs, are scarce."""

Rows = NDArray[np.intp]
Scores = NDArray[np.float64]
Ranking = Callable[[Rows], NDArray[np.int64]]
"""Returns a number per given row, the lowest for the best; no two rows have the same."""

_STEPS = 10**9  # scores that differ by less are equal, whatever the rounding of their sums
_BOUND = 1000.0


def ranking(gang: Gang, ledger: Ledger, *, assumed: Resources) -> Ranking:
    """Return the order of preference among rows; equal scores go by node name, so that all agree.

    A pod that requests no CPU or memory counts as `assumed`, which an administrator may set.

    On GPUs and other extended resources the tightest fit, so that whole nodes stay free for jobs
    that need them. On CPU and memory the least allocated, because pods that may burst share what
    is left; unless all pods are Guaranteed and cannot burst: then the tightest fit again.
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
    if scarce:
        columns = [gang.resources.index(name) for name in scarce]
        left = ledger.free(scarce)[:, rows] - gang.total[columns][:, None]
        tightness: Scores = -_share(left, ledger.allocatable(scarce)[:, rows])
        # Equal on the scarce resources: the least loaded, by a weight that never outvotes them.
        return tightness - 1e-6 * load
    return load if gang.guaranteed else -load


def _load(gang: Gang, ledger: Ledger, rows: Rows, assumed: Resources) -> Scores:
    """Return the mean share of CPU and memory in use with the gang on the node."""
    wanted = [[_wanted(gang, name, assumed.get(name, ASSUMED[name]))] for name in ASSUMED]
    after = ledger.scored_load()[:, rows] + wanted
    return _share(after, ledger.allocatable(tuple(ASSUMED))[:, rows])


def _wanted(gang: Gang, name: str, assumed: int) -> int:
    """Return what all members request of a resource; who requests none counts as `assumed`."""
    if name not in gang.resources:
        return assumed * len(gang.members)
    number = gang.resources.index(name)
    return int(gang.total[number]) + sum(
        assumed * batch.count for batch in gang.batches if not batch.requests[number]
    )


def _share(amounts: Amounts, of: Amounts) -> Scores:
    """Return the mean over the resources of what share the amounts are."""
    shares: Scores = (amounts / np.maximum(of, 1)).sum(axis=0) / len(amounts)
    return shares
