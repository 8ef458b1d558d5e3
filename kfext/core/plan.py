"""The solver: where every pod of a gang goes. The one used by controller, CLI and simulator.

Two stages, as in CMS-DL: stage A chooses one node for the whole gang, or the smallest good set
of nodes; stage B gives each pod its node.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from kfext.core.eligible import Mask
from kfext.core.explain import no_place
from kfext.core.gang import Gang, Member, gang
from kfext.core.ledger import ASSUMED, Amounts, Ledger
from kfext.core.nodeset import divide
from kfext.core.score import Ranking, Rows, ranking
from kfext.model.plan import Assignment
from kfext.model.quantity import Resources
from kfext.model.verdict import Verdict


def place(
    members: Sequence[Member],
    ledger: Ledger,
    *,
    one_node: bool,
    bound: Assignment | None = None,
    excluded: Collection[str] = (),
    ignoring: Collection[Hashable] = (),
    topology_keys: Sequence[str] = (),
    assumed: Resources = ASSUMED,
) -> Assignment | Verdict:
    """Return the node of every member, or why there is no place.

    `bound` members stay where they are and draw the others to them; `excluded` nodes are out of
    the question; `ignoring` are claims of the gang itself, which count as free. With `one_node`
    only a single node will do (colocation: required). A pod that requests no CPU or memory counts
    as `assumed` in scores, never in what fits. Deterministic: equal nodes go by name.
    """
    bound = bound or {}
    moving = gang(member for member in members if member.key not in bound)
    if not moving.members:
        return dict(bound)
    possible = _masks(moving, ledger, excluded=excluded)
    task = _Task(
        gang=moving,
        masks=_without_taken_ports(moving, ledger, possible, ignoring=ignoring),
        ranking=ranking(moving, ledger, assumed=assumed),
        homes=_rows(bound.values(), ledger),
        one_node=one_node,
    )
    free = ledger.free(moving.resources, ignoring=ignoring)
    rows = _solve(task, free)
    if rows is not None:
        return {**bound, **_named(moving, rows, ledger)}
    empty = _Task(moving, possible, task.ranking, task.homes, one_node)
    return no_place(
        moving,
        ledger,
        possible=possible,
        free=free,
        one_node=one_node,
        ever=_solve(empty, ledger.allocatable(moving.resources)) is not None,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked: `masks` are per batch of the gang, `homes` the rows of its bound members."""

    gang: Gang
    masks: Sequence[Mask]
    ranking: Ranking
    homes: Rows
    one_node: bool


def _solve(task: _Task, free: Amounts) -> Rows | None:
    """Return the row of each member within `free`, shape (resources, rows), or None."""
    if len(task.homes):
        beside = _solve_within(task, [_only(mask, task.homes) for mask in task.masks], free)
        if beside is not None or task.one_node:
            return beside
    return _solve_within(task, task.masks, free)


def _solve_within(task: _Task, masks: Sequence[Mask], free: Amounts) -> Rows | None:
    """Return the row of each member: one row for all, else the smallest good set of rows."""
    fits = np.logical_and.reduce(masks)
    for amounts, wanted in zip(free, task.gang.total, strict=True):
        fits &= amounts >= wanted
    rows = np.flatnonzero(fits)
    if len(rows) and not task.gang.ports_clash:
        best = rows[task.ranking(rows).argmin()]
        return np.full(len(task.gang.members), best)
    if task.one_node and len(task.homes) <= 1:
        return None
    return divide(task.gang, free=free, masks=masks, ranking=task.ranking)


def _only(mask: Mask, rows: Rows) -> Mask:
    """Return the mask without all other rows."""
    limited: Mask = np.zeros_like(mask)
    limited[rows] = mask[rows]
    return limited


def _rows(nodes: Collection[str], ledger: Ledger) -> Rows:
    """Return the rows of those nodes that are still there."""
    rows = {row for node in nodes if (row := ledger.row(node)) is not None}
    return np.array(sorted(rows), dtype=np.intp)


def _masks(moving: Gang, ledger: Ledger, *, excluded: Collection[str]) -> Sequence[Mask]:
    """Return per batch which rows its constraints allow, whatever is free."""
    shut = _rows(excluded, ledger)
    masks = []
    for batch in moving.batches:
        mask = ledger.eligible(batch.constraints)
        if len(shut):
            mask = mask.copy()
            mask[shut] = False
        masks.append(mask)
    return masks


def _without_taken_ports(
    moving: Gang, ledger: Ledger, masks: Sequence[Mask], *, ignoring: Collection[Hashable]
) -> Sequence[Mask]:
    """Return the masks without the rows where others hold a host port of the batch."""
    open_ = []
    for batch, mask in zip(moving.batches, masks, strict=True):
        taken = ledger.with_port_taken(batch.constraints.host_ports, ignoring=ignoring)
        if taken:
            mask = mask.copy()  # noqa: PLW2901
            mask[taken] = False
        open_.append(mask)
    return open_


def _named(moving: Gang, rows: Rows, ledger: Ledger) -> Assignment:
    nodes = [ledger.nodes[row] for row in rows]
    return {
        member.key: node.name
        for member, node in zip(moving.members, nodes, strict=True)
        if node is not None
    }


def still_fits(
    members: Sequence[Member],
    ledger: Ledger,
    *,
    assignment: Assignment,
    excluded: Collection[str] = (),
    ignoring: Collection[Hashable] = (),
) -> bool:
    """Return whether every member may still go where `assignment` says, on the ledger as it is.

    `ignoring` are the claims that hold this very room.
    """
    moving = gang(members)
    places = [ledger.row(assignment.get(member.key, "")) for member in moving.members]
    rows = np.array([row for row in places if row is not None], dtype=np.intp)
    if not places:
        return True
    if len(rows) < len(places):
        return False
    possible = _masks(moving, ledger, excluded=excluded)
    masks = _without_taken_ports(moving, ledger, possible, ignoring=ignoring)
    left = ledger.free(moving.resources, ignoring=ignoring)
    ports: set[tuple[int, tuple[str, int]]] = set()
    start = 0
    for batch, mask in zip(moving.batches, masks, strict=True):
        own = rows[start : start + batch.count]
        start += batch.count
        left -= np.bincount(own, minlength=left.shape[1]) * batch.requests[:, None]
        wanted = {(int(row), port) for row in own for port in batch.constraints.host_ports}
        clash = len(wanted) < batch.count * len(batch.constraints.host_ports)
        if not mask[own].all() or clash or not ports.isdisjoint(wanted):
            return False
        ports |= wanted
    return bool((left[:, rows] >= 0).all())
