"""What the nodes have, what of it is free, and what is reserved: for people and for Prometheus.

No job is named, because readers need not be allowed to see the jobs of all namespaces.
"""

import json
import math
from collections.abc import Iterator

import numpy as np

from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.fit import Mask
from kfext.core.ledger.ledger import Ledger
from kfext.core.queue.reservation import Reservation

MOST_BYTES = 1_000_000
"""The most bytes of the nodes in a record, because a ConfigMap holds 1 MiB."""
_UNTIL_SECONDS = 60
"""The end of a reservation is rounded to this: it moves with each step of the awaited jobs."""
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def capacity_record(ledger: Ledger, kept: Reservation | None) -> str:
    """Return what is known of each node, and the reservation, as JSON.

    {"nodes": {name: {"allocatable": {resource: number}, "free": {resource: number}}},
    "reservation": {"nodes": [names], "until": epoch seconds or null} or null}

    Numbers are in the units of model.quantity. A node lists what it has of the main resources. What
    the reservation keeps counts as free: it is free for one job. Where not all nodes fit into the
    record, those without extended resources are left out first, the last by name.
    """
    resources = ledger.main_resources
    scarce: Mask = np.logical_or.reduce(ledger.allocatable(ledger.extended) > 0)
    has, free = ledger.allocatable(resources).T.tolist(), _unclaimed(ledger, kept).T.tolist()
    reservation = _ENCODE(_reservation(kept))
    left, nodes = MOST_BYTES - len(reservation), list[str]()
    rows = ((not scarce[row], node.name, row) for row, node in enumerate(ledger.nodes) if node)
    for _, name, row in sorted(rows):
        listed = [line for line, number in enumerate(has[row]) if number]
        parts = {"allocatable": has[row], "free": free[row]}
        amounts = {part: {resources[at]: of[at] for at in listed} for part, of in parts.items()}
        entry = f"{_ENCODE(name)}:{_ENCODE(amounts)}"
        left -= len(entry) + 1
        if left < 0:
            break
        nodes.append(entry)
    return f'{{"nodes":{{{",".join(nodes)}}},"reservation":{reservation}}}'


def _reservation(kept: Reservation | None) -> dict[str, object] | None:
    if kept is None:
        return None
    known = not math.isinf(kept.until)
    until = round(kept.until / _UNTIL_SECONDS) * _UNTIL_SECONDS if known else None
    return {"nodes": kept.nodes, "until": until}


def capacity_totals(ledger: Ledger, kept: Reservation | None) -> Iterator[tuple[str, str, int]]:
    """Yield resource, state and amount over all nodes.

    States: `used` is claimed, `reserved` is kept by the reservation. `free` is the rest on nodes
    that are neither cordoned nor drained.
    """
    resources, unclaimed = ledger.main_resources, _unclaimed(ledger, kept)
    free = np.maximum(ledger.free(resources), 0)
    closed = [not node or node.unschedulable or node.drain is not None for node in ledger.nodes]
    used, reserved = ledger.allocatable(resources) - unclaimed, unclaimed - free
    free[:, np.flatnonzero(closed)] = 0
    for state, of in {"used": used, "reserved": reserved, "free": free}.items():
        for resource, number in zip(resources, of.sum(axis=1).tolist(), strict=True):
            yield resource, state, number


def _unclaimed(ledger: Ledger, kept: Reservation | None) -> Amounts:
    """Return what is free if the reservation keeps nothing, shape (resources, rows)."""
    ignoring = kept.claims if kept else ()
    # Pods that are about to end may still exist, so a node can have more claims than capacity.
    unclaimed: Amounts = np.maximum(ledger.free(ledger.main_resources, ignoring=ignoring), 0)
    return unclaimed
