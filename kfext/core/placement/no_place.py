"""The refusal of a gang that cannot be placed: a message with numbers for the user."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.fit import Mask, in_words
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.candidates import Candidates
from kfext.core.placement.gang import Batch, Gang
from kfext.core.words import listed, nodes, pods
from kfext.model.gpu import COUNTS, has_slot_units
from kfext.model.node import Node
from kfext.model.quantity import PODS, amount_text
from kfext.model.verdict import Verdict
from kfext.names import (
    HOSTNAME,
    NATIVE_GPU,
    REASON_NO_ELIGIBLE_NODE,
    REASON_NO_ROOM,
    REASON_TOO_BIG,
)

_CAUSES = 3
"""The most causes in a message, the most frequent first."""


def no_place(
    gang: Gang, rows: Candidates, *, free: Amounts, kept_for: str, fits_empty: bool
) -> Verdict:
    """Return the refusal of a gang that cannot be placed now.

    `rows`: the rows that it may use.
    `free`: the free amounts without and with the capacity that is kept for the job `kept_for`,
        shape (2, resources, rows).
    `fits_empty`: whether the gang would fit if the nodes were empty.
    """
    ledger, limits, possible = rows.ledger, rows.limits, rows.possible
    narrowest = min(range(len(possible)), key=lambda i: np.count_nonzero(possible[i]))
    eligible = [*_eligible(gang, narrowest, rows)]
    if not possible[narrowest].any():
        return Verdict(REASON_NO_ELIGIBLE_NODE, "; ".join(eligible))
    anywhere = np.logical_or.reduce(possible)
    count = int(np.count_nonzero(anywhere))
    most = count if limits.max_nodes is None else min(limits.max_nodes, count)
    shortages = [
        sentence
        for i, resource in enumerate(gang.resources)
        if (sentence := _shortage(gang, i, free[:, i, anywhere], limits.max_nodes, kept_for))
    ]
    if shortages:
        shortages += _cards(gang, ledger, anywhere)
    why = [*shortages, *_apart(gang, most)] or [
        _taken_ports(gang, possible, rows.open) or _in_pieces(limits.max_nodes)
    ]
    if not fits_empty:
        why.append("it would not fit even if the nodes were empty")
    verb, where = ("need", _where(limits.max_nodes)) if len(gang.members) > 1 else ("needs", "")
    needs = f"{pods(len(gang.members))} {verb} {_amounts(gang)}{where}"
    message = "; ".join((needs, *why, *eligible))
    return Verdict(REASON_NO_ROOM if fits_empty else REASON_TOO_BIG, message)


def _eligible(gang: Gang, narrowest: int, rows: Candidates) -> Iterator[str]:
    """Yield a clause on the nodes eligible for the narrowest batch, then clauses on the others."""
    ledger, possible = rows.ledger, rows.possible
    if not ledger.node_count:
        yield "the cluster has no nodes"
        return
    batch, mask = gang.batches[narrowest], possible[narrowest]
    obstacles = ledger.excluded(batch.constraints)
    alike = sum(
        other.count
        for other, same in zip(gang.batches, possible, strict=True)
        if (same == mask).all() and ledger.excluded(other.constraints) == obstacles
    )
    several = alike < len(gang.members)
    who = f"{alike} of {len(gang.members)} pods"
    number = np.count_nonzero(mask)
    verb = "is" if number < 2 else "are"
    summary = f"{number or 'none'} of {ledger.node_count} nodes {verb} eligible"
    yield f"{summary} for {who}" if several else summary
    yield from _causes(batch, rows, who=who if several else "the pods")


def _causes(batch: Batch, rows: Candidates, *, who: str) -> Iterator[str]:
    """Yield clauses on the number of nodes that each obstacle excludes, the most frequent first.

    The limits of the job are always named, because its user can change them.
    """
    ledger = rows.ledger
    obstacles, fit = ledger.excluded(batch.constraints), ledger.eligible(batch.constraints)
    causes = [(count, in_words(why, number=count, pods=who)) for why, count in obstacles.items()]
    limits = [
        (count, f"{nodes(count)} {limit.why}")
        for limit in rows.limits.per_node
        if (count := sum(not limit.allows(node) for node in _nodes(ledger, fit)))
    ]
    if shared := ledger.node_count - sum(obstacles.values()) - int(np.count_nonzero(fit)):
        causes.append((shared, f"{nodes(shared)} without a {HOSTNAME} label of its own"))
    causes.sort(key=_rank)
    others = max(_CAUSES - len(limits), 0)
    yield from (words for _, words in sorted([*limits, *causes[:others]], key=_rank))
    if more := sum(count for count, _ in causes[others:]):
        yield f"{more} more node{'s are' if more > 1 else ' is'} excluded"


def _rank(cause: tuple[int, str]) -> tuple[int, str]:
    count, words = cause
    return -count, words


def _taken_ports(gang: Gang, possible: Sequence[Mask], open_: Sequence[Mask]) -> str:
    """Return a clause on the eligible nodes with a taken host port, or an empty string."""
    for batch, mask, free in zip(gang.batches, possible, open_, strict=True):
        numbers = [str(number) for _, number in batch.constraints.host_ports]
        if numbers and (taken := np.count_nonzero(mask & ~free)):
            which = "host port" if len(numbers) == 1 else "one of the host ports"
            return (
                f"{which} {listed(numbers, noun='ports')} is taken on {taken} of the eligible nodes"
            )
    return ""


def _cards(gang: Gang, ledger: Ledger, mask: Mask) -> Iterator[str]:
    """Yield clauses on slots that cannot be shared, for a gang that shares GPUs."""
    if not any(name.startswith(COUNTS) for name in gang.resources):
        return
    nodes = _nodes(ledger, mask)
    troubles = Counter(trouble for node in nodes for trouble in node.troubles)
    for trouble, count in troubles.most_common(_CAUSES):
        yield f"{count} slot{'s' * (count > 1)} cannot be shared: {trouble}"
    slotted = [node.allocatable for node in nodes if has_slot_units(node.allocatable)]
    if bare := sum(not amounts.get(NATIVE_GPU) for amounts in slotted):
        have = "has" if bare == 1 else "have"
        yield (
            f"{bare} of the eligible nodes {have} slots but no {NATIVE_GPU}, which reserves a GPU: "
            f"with DRA alone GPUs cannot be shared"
        )


def _nodes(ledger: Ledger, mask: Mask) -> list[Node]:
    return [node for row in np.flatnonzero(mask) if (node := ledger.nodes[row]) is not None]


def _where(max_nodes: int | None) -> str:
    if max_nodes is None:
        return " together"
    return " on one node" if max_nodes == 1 else f" on at most {max_nodes} nodes"


def _in_pieces(max_nodes: int | None) -> str:
    """Return the clause for a gang that does not fit although there is enough of each resource."""
    if max_nodes == 1:
        return "no single node has all of it"
    some = "" if max_nodes is None else f"{max_nodes} of "
    return f"no division of the pods over {some}the eligible nodes fits"


def _apart(gang: Gang, most: int) -> Iterator[str]:
    """Yield a clause on anti-affinity, or on a host port that more than `most` pods want."""
    if gang.apart and any(batch.constraints.apart for batch in gang.batches):
        yield f"by its anti-affinity, {gang.max_anti_affine} of its pods need a node each"
        return
    wanted: Counter[int] = Counter()
    for batch in gang.batches:
        wanted.update({number: batch.count for _, number in batch.constraints.host_ports})
    for number, count in wanted.most_common(1):
        if count > most:
            yield f"{count} of its pods want host port {number}, which a node has only once"


def _amounts(gang: Gang) -> str:
    return (
        ", ".join(
            amount_text(name, int(number))
            for name, number in zip(gang.resources, gang.total, strict=True)
            if name != PODS
        )
        or "no resources"
    )


def _shortage(
    gang: Gang, number: int, free: Amounts, max_nodes: int | None, kept_for: str
) -> str | None:
    """Return a clause on the missing amount of a resource on the freest nodes, or None."""
    resource, wanted = gang.resources[number], int(gang.total[number])
    freest = np.sort(np.maximum(free, 0))[:, ::-1]
    most, total = freest[:, :1].sum(axis=1), freest[:, :max_nodes].sum(axis=1)
    if total[0] < wanted:
        has = _has(resource, total, kept_for)
        short = f"{amount_text(resource, wanted - int(total[0]))} short"
        if max_nodes is None or freest.shape[1] < max_nodes:
            return f"{has} free, {short}"
        which = "node has" if max_nodes == 1 else f"{max_nodes} nodes have"
        return f"the freest {which} {has}, {short}"
    largest = int(gang.largest[number])
    if most[0] < largest:
        needed, has = amount_text(resource, largest), _has(resource, most, kept_for)
        return f"one pod needs {needed}, the freest node has {has}"
    return None


def _has(resource: str, free: Amounts, kept_for: str) -> str:
    """Return the free amount in words, and the part of it that is kept for another job."""
    usable, idle = int(free[0]), int(free[1])
    part = f"{amount_text(resource, idle - usable)} " if usable else ""
    kept = f" ({part}kept for {kept_for})" if usable < idle else ""
    return amount_text(resource, idle) + kept
