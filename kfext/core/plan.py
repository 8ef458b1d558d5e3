"""The solver: where every pod of a gang goes. The one used by controller, CLI and simulator.

Two stages, as in CMS-DL: stage A chooses one node for the whole gang, or the smallest good set
of nodes; stage B gives each pod its node.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kfext.core.explain import no_place
from kfext.core.gang import Gang, Member, gang
from kfext.core.ledger import Amounts, Ledger, Mask
from kfext.core.nodeset import divide
from kfext.core.score import Scores, best_row, best_rows, node_scores
from kfext.model.plan import Assignment
from kfext.model.verdict import Verdict


def place(
    members: Sequence[Member],
    ledger: Ledger,
    *,
    one_node: bool,
    bound: Assignment | None = None,
    excluded: Collection[str] = (),
    ignoring: Iterable[Hashable] = (),
) -> Assignment | Verdict:
    """Return the node of every member, or why there is no place.

    `bound` members stay where they are and draw the others to them; `excluded` nodes are out of
    the question; `ignoring` are claims of the gang itself, which count as free. With `one_node`
    only a single node will do (colocation: required). Deterministic: equal nodes are taken in
    name order.
    """
    bound = bound or {}
    moving = gang(member for member in members if member.key not in bound)
    if not moving.members:
        return dict(bound)
    task = _Task(
        gang=moving,
        ledger=ledger,
        masks=_masks(moving, ledger, excluded=excluded),
        scores=node_scores(moving, ledger),
        homes=frozenset(row for node in bound.values() if (row := ledger.row(node)) is not None),
        one_node=one_node,
    )
    free = ledger.free(moving.resources, ignoring=ignoring)
    rows = _solve(task, free)
    if rows is not None:
        return {**bound, **_named(moving, rows, ledger)}
    return no_place(
        moving,
        ledger,
        possible=np.logical_or.reduce(_distinct(task.masks)),
        free=free,
        one_node=one_node,
        ever=_solve(task, ledger.allocatable(moving.resources)) is not None,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """What stays the same whether we ask for the free room or for the empty cluster."""

    gang: Gang
    ledger: Ledger
    masks: Sequence[Mask]
    scores: Scores
    homes: frozenset[int]
    one_node: bool


def _solve(task: _Task, free: Amounts) -> list[int] | None:
    """Return the row of each member within `free`, shape (resources, rows), or None."""
    everywhere = np.logical_and.reduce(_distinct(task.masks))
    if len(task.homes) <= 1 and not task.gang.ports_clash:
        fits = everywhere & (free >= task.gang.total[:, None]).all(axis=0)
        if task.homes:
            fits = fits & np.isin(np.arange(len(fits)), list(task.homes))
        if fits.any():
            row = best_row(np.flatnonzero(fits), task.scores, task.ledger)
            return [row] * len(task.gang.members)
        if task.one_node:
            return None
    anywhere = np.logical_or.reduce(_distinct(task.masks))
    order = best_rows(np.flatnonzero(anywhere), task.scores, task.ledger)
    order.sort(key=lambda row: row not in task.homes)
    return divide(task.gang, free=free, masks=task.masks, order=order, scores=task.scores)


def _masks(moving: Gang, ledger: Ledger, *, excluded: Collection[str]) -> Sequence[Mask]:
    """Return per member which rows it may use; members with equal constraints share one array."""
    shut = [row for row in map(ledger.row, excluded) if row is not None]
    of: dict[object, Mask] = {}
    for constraints in moving.constraints:
        mask = ledger.eligible(constraints)
        if shut:
            mask = mask.copy()
            mask[shut] = False
        of[constraints] = mask
    return [of[member.constraints] for member in moving.members]


def _distinct(masks: Sequence[Mask]) -> list[Mask]:
    return list({id(mask): mask for mask in masks}.values())


def _named(moving: Gang, rows: Sequence[int], ledger: Ledger) -> Assignment:
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
    ignoring: Iterable[Hashable] = (),
) -> bool:
    """Return whether every member may still go where `assignment` says, on the ledger as it is.

    `ignoring` are the claims that hold this very room.
    """
    moving = gang(members)
    rows = [ledger.row(assignment.get(member.key, "")) for member in moving.members]
    if any(row is None for row in rows):
        return False
    masks = _masks(moving, ledger, excluded=excluded)
    free = ledger.free(moving.resources, ignoring=ignoring)
    for row, wanted, mask in zip(rows, moving.requests, masks, strict=True):
        free[:, row] -= wanted
        if not mask[row]:
            return False
    return bool((free[:, [row for row in rows if row is not None]] >= 0).all())
