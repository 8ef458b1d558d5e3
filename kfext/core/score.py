"""Which of the possible nodes is best for a gang, or for its share of a node set.

A rule that makes one node better than another goes here.
"""

import numpy as np
from numpy.typing import NDArray

from kfext.core.gang import Gang
from kfext.core.ledger import ASSUMED, Amounts, Ledger
from kfext.model.quantity import CPU, MEMORY, PODS

COMMON = frozenset({CPU, MEMORY, PODS, "ephemeral-storage"})
"""Resources that every node has; all others, such as GPUs, are scarce."""

Scores = NDArray[np.float64]


def node_scores(gang: Gang, ledger: Ledger) -> Scores:
    """Return a score per row of the ledger, higher is better; only possible rows are compared.

    On GPUs and other extended resources the tightest fit, so that whole nodes stay free for jobs
    that need them. On CPU and memory the least allocated, because pods that may burst share what
    is left; unless all pods are Guaranteed and cannot burst: then the tightest fit again.
    """
    scarce = [name for name in gang.resources if name not in COMMON]
    load = _load(gang, ledger)
    if scarce:
        columns = [gang.resources.index(name) for name in scarce]
        left = ledger.free(scarce) - gang.total[columns][:, None]
        tightness: Scores = -_share(left, ledger.allocatable(scarce)).mean(axis=0)
        # Equal on the scarce resources: the least loaded, by a weight that never outvotes them.
        return tightness - 1e-6 * load
    return load if gang.guaranteed else -load


def best_row(rows: NDArray[np.intp], scores: Scores, ledger: Ledger) -> int:
    """Return the row with the best score; of equal ones the first by name."""
    rounded = np.round(scores[rows], 9)
    equal = rows[rounded == rounded.max()]
    return int(min(equal, key=lambda row: _name(ledger, row)))


def best_rows(rows: NDArray[np.intp], scores: Scores, ledger: Ledger) -> list[int]:
    """Return the rows, best score first; equal scores in name order, so that all agree."""
    rounded = np.round(scores[rows], 9)
    names = np.array([_name(ledger, row) for row in rows])
    return [int(row) for row in rows[np.lexsort((names, -rounded))]]


def _load(gang: Gang, ledger: Ledger) -> Scores:
    """Return the mean share of CPU and memory in use with the gang on the node."""
    wanted = np.array(
        [
            sum(member.requests.get(name) or assumed for member in gang.members)
            for name, assumed in ASSUMED.items()
        ],
        dtype=np.int64,
    )
    after = ledger.scored_load() + wanted[:, None]
    share: Scores = _share(after, ledger.allocatable((CPU, MEMORY))).mean(axis=0)
    return share


def _share(amounts: Amounts, of: Amounts) -> Scores:
    return amounts / np.maximum(of, 1)


def _name(ledger: Ledger, row: int) -> str:
    node = ledger.nodes[row]
    return node.name if node else ""
