"""Verdicts in words: sentences with numbers, for people who wait."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from kfext.core.fit import why_not
from kfext.core.gang import Gang
from kfext.core.ledger import Amounts, Ledger, Mask
from kfext.model.quantity import human
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ELIGIBLE_NODE, REASON_NO_ROOM, REASON_TOO_BIG

_CAUSES = 3
"""How many causes a sentence names, most frequent first."""


def no_place(
    gang: Gang, ledger: Ledger, *, possible: Mask, free: Amounts, one_node: bool, ever: bool
) -> Verdict:
    """Return why a gang has no place now; `ever` says whether the empty cluster would hold it.

    `possible` says which rows the constraints allow; `free` has shape (resources, rows).
    """
    nodes = sum(node is not None for node in ledger.nodes)
    if not possible.any():
        return Verdict(REASON_NO_ELIGIBLE_NODE, _no_node(gang, ledger, nodes=nodes))
    shortages = [
        sentence
        for number, resource in enumerate(gang.resources)
        if (sentence := _shortage(gang, number, resource, free[number][possible], one_node))
    ]
    where = "on one node" if one_node else "together"
    message = (
        f"{len(gang.members)} pods need {_amounts(gang)} {where}; "
        f"{np.count_nonzero(possible)} of {nodes} nodes are possible; "
        + ("; ".join(shortages) or "no division of the pods over these nodes fits")
    )
    if ever:
        return Verdict(REASON_NO_ROOM, message)
    return Verdict(REASON_TOO_BIG, f"{message}; it would not fit even if they were empty")


def _amounts(gang: Gang) -> str:
    return (
        ", ".join(
            human(name, int(number))
            for name, number in zip(gang.resources, gang.total, strict=True)
            if name != "pods"
        )
        or "no resources"
    )


def _shortage(gang: Gang, number: int, resource: str, free: Amounts, one_node: bool) -> str | None:
    """Return how much of a resource is missing, or None if it is not what is short."""
    wanted = int(gang.total[number])
    most = max(int(free.max(initial=0)), 0)
    total = int(np.maximum(free, 0).sum())
    if one_node and most < wanted:
        return f"the freest has {human(resource, most)}, {human(resource, wanted - most)} short"
    if total < wanted:
        return f"{human(resource, total)} free, {human(resource, wanted - total)} short"
    largest = int(gang.requests[:, number].max())
    if most < largest:
        return (
            f"one pod needs {human(resource, largest)}, the freest node has {human(resource, most)}"
        )
    return None


def _no_node(gang: Gang, ledger: Ledger, *, nodes: int) -> str:
    if not nodes:
        return "the cluster has no node"
    causes = Counter(
        cause
        for node in ledger.nodes
        if node is not None and (cause := why_not(gang.members[0].constraints, node))
    )
    named = ", ".join(f"{count} by {cause}" for cause, count in causes.most_common(_CAUSES))
    return f"none of {nodes} nodes is possible: " + (named or "all excluded after failed attempts")


def listed(nodes: Sequence[str]) -> str:
    """Return node names as a person would say them, at most three of them."""
    if len(nodes) <= 3:
        return " and ".join(nodes)
    return f"{nodes[0]}, {nodes[1]} and {len(nodes) - 2} more nodes"
