"""The allocatable, free and reserved capacity of the nodes, for people and for Prometheus.

No job is named, because readers may not be allowed to see the jobs of all namespaces.
"""

import json
import math
from collections.abc import Iterator

import numpy as np

from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.fit import Mask
from kfext.core.ledger.ledger import Ledger
from kfext.core.queue.reservation import Reservation

MAX_BYTES = 1_000_000
"""The most bytes of a record, because a ConfigMap holds 1 MiB."""
_UNTIL_SECONDS = 60
"""`until` is rounded to this many seconds: the estimate moves with each step of awaited jobs."""
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def capacity_record(ledger: Ledger, current: Reservation | None) -> str:
    """Return the capacity of each node, and the reservation, as JSON.

    {"nodes": {name: {"allocatable": {resource: number}, "free": {resource: number}}},
    "reservation": {"nodes": [names], "until": epoch seconds or null} or null}

    Numbers are in the units of model.quantity. A node lists the main resources that it has.
    Reserved capacity counts as free: it is free for one job. If not all nodes fit into the record,
    nodes without extended resources are omitted first, in reverse order of name.
    """
    resources = ledger.main_resources
    has_extended: Mask = np.logical_or.reduce(ledger.allocatable(ledger.extended) > 0)
    total, free = ledger.allocatable(resources).T.tolist(), _unclaimed(ledger, current).T.tolist()
    reservation = _ENCODE(_reservation(current))
    remaining, nodes = MAX_BYTES - len(reservation), list[str]()
    rows = [(node.name, row) for row, node in enumerate(ledger.nodes) if node]
    for name, row in sorted(rows, key=lambda entry: (not has_extended[entry[1]], *entry)):
        listed = [i for i, number in enumerate(total[row]) if number]
        columns = {"allocatable": total[row], "free": free[row]}
        amounts = {key: {resources[i]: n[i] for i in listed} for key, n in columns.items()}
        entry = f"{_ENCODE(name)}:{_ENCODE(amounts)}"
        remaining -= len(entry) + 1
        if remaining < 0:
            break
        nodes.append(entry)
    return f'{{"nodes":{{{",".join(nodes)}}},"reservation":{reservation}}}'


def _reservation(current: Reservation | None) -> dict[str, object] | None:
    if current is None:
        return None
    known = not math.isinf(current.until)
    until = round(current.until / _UNTIL_SECONDS) * _UNTIL_SECONDS if known else None
    return {"nodes": current.nodes, "until": until}


def capacity_totals(ledger: Ledger, current: Reservation | None) -> Iterator[tuple[str, str, int]]:
    """Yield each resource and state with the amount on all nodes together.

    The states are `used` (claimed), `reserved` (held by the reservation) and `free` (all other
    capacity of nodes that are neither cordoned nor drained).
    """
    resources, unclaimed = ledger.main_resources, _unclaimed(ledger, current)
    free = np.maximum(ledger.free(resources), 0)
    closed = [not node or node.unschedulable or node.drain is not None for node in ledger.nodes]
    used, reserved = ledger.allocatable(resources) - unclaimed, unclaimed - free
    free[:, np.flatnonzero(closed)] = 0
    for state, amounts in {"used": used, "reserved": reserved, "free": free}.items():
        for resource, number in zip(resources, amounts.sum(axis=1).tolist(), strict=True):
            yield resource, state, number


def _unclaimed(ledger: Ledger, current: Reservation | None) -> Amounts:
    """Return the free amounts as if nothing were reserved, shape (resources, rows)."""
    ignoring = current.claims if current else ()
    # Pods that are about to end may still exist, so claims may exceed the capacity of a node.
    unclaimed: Amounts = np.maximum(ledger.free(ledger.main_resources, ignoring=ignoring), 0)
    return unclaimed
