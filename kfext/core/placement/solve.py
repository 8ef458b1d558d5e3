"""Stages A and B of a placement on one state of the ledger: the nodes, and the pods on each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kfext.core.ledger.columns import Amounts, Domains
from kfext.core.ledger.fit import Mask
from kfext.core.placement.division import Weights, cost
from kfext.core.placement.domains import side_by_side, surroundings
from kfext.core.placement.gang import Gang, gang_of
from kfext.core.placement.limits import Limits
from kfext.core.placement.nodeset import MOST_NODES, divide, fewest_nodes
from kfext.core.placement.pack import fill
from kfext.core.placement.pool import pool
from kfext.core.placement.score import Ranking, Rows
from kfext.core.placement.search import Bound


@dataclass(frozen=True, slots=True)
class Task:
    """A gang to place, with everything that decides where, except what is free.

    `gang`: the members to place.
    `masks`: per batch of the gang, the rows that it may use.
    `ranking`: the order of preference among rows.
    `weights`: the costs of divisions.
    `homes`: the row of each bound member of the job whose node still exists.
    `levels`: the topology domains of all rows, the widest level first.
    `limits`: those of the job's settings; what excludes single nodes is in the masks already.
    `searches`: whether divisions are tried one by one if the usual ways find none.
    """

    gang: Gang
    masks: Sequence[Mask]
    ranking: Ranking
    weights: Weights
    homes: Rows
    levels: Sequence[Domains]
    limits: Limits
    searches: bool = True


def solve(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member within `free`, shape (resources, rows), or None."""
    if not len(task.homes):
        return _unanchored(task, free)
    if task.limits.one_node:
        return _at_homes(task, free)
    for number, near in enumerate(_nearness(task)):
        closer = replace(task, masks=[mask & near for mask in task.masks])
        found = _beside(closer, free) if number else _unanchored(closer, free)
        if found is not None:
            return found
    return None


def _at_homes(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member of a job that is to be on one node.

    That is where most of its bound members are: somebody may have let others go elsewhere. Only
    what has no room there goes to these.
    """
    homes, members = np.unique(task.homes, return_counts=True)
    for rows in (homes[[members.argmax()]], homes):
        at_home = np.isin(np.arange(len(task.masks[0])), rows)
        found = _unanchored(replace(task, masks=[mask & at_home for mask in task.masks]), free)
        if found is not None:
            return found
    return None


def _nearness(task: Task) -> Iterator[Mask]:
    """Yield the rows of bound members, then those in their domains, then all."""
    at_home = np.zeros(len(task.masks[0]), dtype=np.bool_)
    at_home[task.homes] = True
    yield at_home
    for level in reversed(task.levels):
        own = level[task.homes]
        yield at_home | np.isin(level, own[own >= 0])
    yield np.ones_like(at_home)


def _unanchored(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member: one row for all, else the nearest good node set."""
    fits = np.logical_and.reduce(task.masks)
    for amounts, wanted in zip(free, task.gang.total, strict=True):
        if wanted > 0:  # other resources may be overcommitted by other pods
            fits &= amounts >= wanted
    rows = np.flatnonzero(fits)
    if len(rows) and not task.gang.apart:
        best = rows[task.ranking(rows).argmin()]
        return np.full(len(task.gang.members), best)
    if task.limits.one_node and len(np.unique(task.homes)) <= 1:
        return None
    return _divided(task, free)


def _divided(task: Task, free: Amounts) -> Rows | None:
    """Return the cheapest division within the nearest surroundings that hold the gang."""
    gang, nodes = task.gang, pool(task.gang, free=free, masks=task.masks)
    if not nodes.may_hold(gang):
        return None
    # Counted over all nodes, so that balance within a rack of small nodes does not cost more.
    most = MOST_NODES * fewest_nodes(nodes.capacity, len(gang.members))
    parts = Bound() if task.searches else Bound(left=0)  # of all domains together
    for near in surroundings(gang, nodes, task.levels, weights=task.weights):
        place, is_part = nodes.only(near), len(near) < len(nodes.rows)
        rows = divide(
            gang,
            place,
            ranking=task.ranking,
            weights=task.weights,
            most=most,
            bound=parts if is_part or not task.searches else Bound(),
        )
        if rows is not None:
            return side_by_side(gang, rows, task.levels) if task.levels else rows
    return None


def _beside(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member near bound members whose nodes cannot hold all of them.

    Either the others stay together, or the homes take as many as they hold and the rest goes
    elsewhere: whichever divides the job better, its bound members included.
    """
    ways = [_homes_first(task, free), _unanchored(task, free)]
    found = [rows for rows in ways if rows is not None]
    return min(found, key=lambda rows: _cost(rows, task), default=None)


def _homes_first(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member: as many as fit on the homes, the rest together elsewhere."""
    gang, homes = task.gang, np.unique(task.homes)
    place = pool(gang, free=free, masks=task.masks)
    at_home = place.only(np.flatnonzero(np.isin(place.rows, homes)))
    spots = fill(gang, at_home, limit=len(gang.members), partly=True)
    if spots is None or (spots < 0).all():
        return None
    rows = np.where(spots < 0, -1, at_home.rows[spots])
    if (spots < 0).any():
        masks = [mask.copy() for mask in task.masks]
        for mask in masks:
            mask[homes] = False
        rest, kept = _part(gang, spots < 0)
        elsewhere = replace(task, gang=rest, masks=[masks[number] for number in kept])
        found = _unanchored(elsewhere, free)
        if found is None:
            return None
        rows[spots < 0] = found
    return rows


def _part(gang: Gang, chosen: Mask) -> tuple[Gang, list[int]]:
    """Return the gang of the chosen members, and which of the batches are left in it."""
    starts = np.cumsum([0, *(batch.count for batch in gang.batches[:-1])])
    counts = np.add.reduceat(chosen.astype(np.int64), starts)
    kept = [number for number, count in enumerate(counts) if count]
    batches = [replace(gang.batches[number], count=int(counts[number])) for number in kept]
    members = [member for member, is_chosen in zip(gang.members, chosen, strict=True) if is_chosen]
    return gang_of(members, gang.resources, batches), kept


def _cost(rows: Rows, task: Task) -> float:
    """Return the cost of the division of the whole job, bound members included."""
    shares = np.unique(np.concatenate((rows, task.homes)), return_counts=True)[1]
    return cost(shares.tolist(), task.weights)
