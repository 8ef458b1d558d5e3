"""The placement of a gang on one state of the ledger, by requests and then by usable CPU.

`solve` decides by requests. Then `with_most_cpu` chooses a placement where the pod with the least
CPU can use as much as possible beyond its request. If one node has enough free CPU for the usable
CPU of all pods, they go there; else some amounts of CPU are tried as if the pods requested them. No
gang is refused or made smaller for CPU beyond its requests.

CPU is free if no other pod requests it. Under load the kernel divides the CPU of a node by
requests, and most pods use far less than they can: if limits counted, most nodes would be full.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kfext.core.ledger.columns import LARGEST, Amounts, Domains
from kfext.core.ledger.fit import Mask
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Batch, Gang, Member, gang_of
from kfext.core.placement.nodeset import SPREAD, divide, fewest_nodes, side_by_side, surroundings
from kfext.core.placement.pool import Bound, fill, pool
from kfext.core.placement.score import Counts, Ranking, Rows, Weights, cost
from kfext.core.words import cpus
from kfext.model.plan import Assignment
from kfext.model.quantity import CPU, ON_EVERY_NODE
from kfext.model.replica_group import ReplicaGroup


@dataclass(frozen=True, slots=True)
class Task:
    """A gang to place, with all inputs of the solver except the free amounts.

    `masks`: for each batch of the gang, the rows that it may use.
    `ranking`: the order of preference among rows.
    `weights`: the costs of divisions.
    `homes`: the row of each bound member of the job, if its node still exists.
    `levels`: the topology domains of all rows, the widest level first.
    `max_nodes`: the most nodes that the job may use; None means any number.
    `searches`: whether divisions are tried one by one if the fast methods find none.
    """

    gang: Gang
    masks: Sequence[Mask]
    ranking: Ranking
    weights: Weights
    homes: Rows
    levels: Sequence[Domains]
    max_nodes: int | None
    searches: bool = True


def solve(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member within `free`, shape (resources, rows), or None.

    Members go to the homes of bound members. If the homes are too small, they go near the homes, on
    no more nodes than the job may use.
    """
    if not len(task.homes):
        return _unanchored(task, free)
    homes = _homes(task)
    for rows in homes:
        placed = _unanchored(_only(replace(task, max_nodes=None), _marked(task, rows)), free)
        if placed is not None:
            return placed
    more_nodes = None if task.max_nodes is None else task.max_nodes - len(homes[-1])
    if more_nodes is None or more_nodes > 0:
        for near in _nearness(task):
            placed = _beside(_only(replace(task, max_nodes=more_nodes), near), free)
            if placed is not None:
                return placed
    return None


def _homes(task: Task) -> Sequence[Rows]:
    """Return the sets of homes to try; the last has all homes.

    If a person moved bound members, they may have more homes than the job may use. Then the homes
    with the most members are tried first.
    """
    homes, members = np.unique(task.homes, return_counts=True)
    if task.max_nodes is None or len(homes) <= task.max_nodes:
        return (homes,)
    return homes[np.argsort(-members, kind="stable")[: task.max_nodes]], homes


def _nearness(task: Task) -> Iterator[Mask]:
    """Yield the rows in the domains of bound members, then all rows."""
    at_home = _marked(task, task.homes)
    for level in reversed(task.levels):
        domains = level[task.homes]
        yield at_home | np.isin(level, domains[domains >= 0])
    yield np.ones_like(at_home)


def _marked(task: Task, rows: Rows) -> Mask:
    mask = np.zeros(len(task.masks[0]), dtype=np.bool_)
    mask[rows] = True
    return mask


def without(task: Task, rows: Rows) -> Task:
    """Return the task without some rows."""
    return _only(task, ~_marked(task, rows))


def _only(task: Task, allowed: Mask) -> Task:
    return replace(task, masks=[mask & allowed for mask in task.masks])


def _unanchored(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member, regardless of homes: one row for all, else a node set."""
    fits = np.logical_and.reduce(task.masks)
    for amounts, wanted in zip(free, task.gang.total, strict=True):
        if wanted > 0:  # other pods may have overcommitted the other resources
            fits &= amounts >= wanted
    rows = np.flatnonzero(fits)
    if len(rows) and not task.gang.apart:
        best = rows[task.ranking(rows).argmin()]
        return np.full(len(task.gang.members), best)
    return None if task.max_nodes == 1 else _divided(task, free)


def _divided(task: Task, free: Amounts) -> Rows | None:
    """Return the cheapest division within the nearest surroundings that hold the gang."""
    gang = task.gang
    nodes = pool(gang, free=free, masks=task.masks, max_nodes=task.max_nodes)
    if not nodes.may_hold(gang):
        return None
    # The nodes of all racks count, so that balance in a rack of small nodes does not use too many.
    balanced = SPREAD * fewest_nodes(nodes.capacity, len(gang.members))
    shared = Bound() if task.searches else Bound(left=0)  # for the searches in all domains
    for near in surroundings(gang, nodes, task.levels, weights=task.weights):
        subset, is_domain = nodes.only(near), len(near) < len(nodes.rows)
        rows = divide(
            gang,
            subset,
            ranking=task.ranking,
            weights=task.weights,
            balanced=balanced,
            bound=shared if is_domain or not task.searches else Bound(),
        )
        if rows is not None:
            return side_by_side(gang, rows, task.levels) if task.levels else rows
    return None


def _beside(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member near bound members, if the homes cannot hold all members.

    Either the unbound members stay together, or the homes are filled first and the remaining
    members go elsewhere. The better division of the whole job, bound members included, wins.
    """
    candidates = [_homes_first(task, free), _unanchored(task, free)]
    placements = [rows for rows in candidates if rows is not None]
    return min(placements, key=lambda rows: _cost(rows, task), default=None)


def _homes_first(task: Task, free: Amounts) -> Rows | None:
    """Return the row of each member: as many as fit are on homes, the others elsewhere."""
    gang, homes = task.gang, np.unique(task.homes)
    nodes = pool(gang, free=free, masks=task.masks)
    at_home = nodes.only(np.flatnonzero(np.isin(nodes.rows, homes)))
    spots = fill(gang, at_home, limit=len(gang.members), partly=True)
    if spots is None or (spots < 0).all():
        return None
    rows = np.where(spots < 0, -1, at_home.rows[spots])
    if (spots < 0).any():
        masks = [mask.copy() for mask in task.masks]
        for mask in masks:
            mask[homes] = False
        others, numbers = _subgang(gang, spots < 0)
        elsewhere = replace(task, gang=others, masks=[masks[number] for number in numbers])
        placed = _unanchored(elsewhere, free)
        if placed is None:
            return None
        rows[spots < 0] = placed
    return rows


def _subgang(gang: Gang, chosen: Mask) -> tuple[Gang, list[int]]:
    """Return the gang of the chosen members, and the numbers of its batches in the whole gang."""
    starts = np.cumsum([0, *(batch.count for batch in gang.batches[:-1])])
    counts = np.add.reduceat(chosen.astype(np.int64), starts)
    numbers = [number for number, count in enumerate(counts) if count]
    batches = [replace(gang.batches[number], count=int(counts[number])) for number in numbers]
    members = [member for member, is_chosen in zip(gang.members, chosen, strict=True) if is_chosen]
    return gang_of(members, gang.resources, batches), numbers


def _cost(rows: Rows, task: Task) -> float:
    """Return the cost of the division of the whole job, bound members included."""
    shares = np.unique(np.concatenate((rows, task.homes)), return_counts=True)[1]
    return cost(shares.tolist(), task.weights)


def can_burst(pods: Sequence[Member | ReplicaGroup], *, assumed: int) -> bool:
    """Return whether any pod of one job can use more CPU than it requests."""
    pairs = zip(pods, usable_cpu(pods, assumed=assumed), strict=True)
    return any(usable > pod.requests.get(CPU, 0) for pod, usable in pairs)


def usable_cpu(pods: Sequence[Member | ReplicaGroup], *, assumed: int) -> list[int]:
    """Return the millicores that each pod of one job can use, at least its request.

    A pod can use its limit, or the `assumed` millicores if it has none. If any pod of the job
    requests a resource that not every node has, such as GPUs, each pod counts with its request:
    the GPUs do the work then, and decide on the nodes.
    """
    requested = [pod.requests.get(CPU, 0) for pod in pods]
    if not all(ON_EVERY_NODE.issuperset(pod.requests) for pod in pods):
        return requested
    return [
        max(least, assumed if pod.cpu_limit is None else pod.cpu_limit)
        for pod, least in zip(pods, requested, strict=True)
    ]


_TRIES = 6
"""The most amounts of CPU tried; the last two differ by at most 1/32 of the freest node's CPU."""
_MAX_CPU = 2**40
"""More than any node has, in millicores; its sums fit 64 bits."""


@dataclass(frozen=True, slots=True)
class Use:
    """The CPU that each member requests, and the CPU that it can use, in millicores."""

    requested: Counts
    usable: Counts

    def at(self, level: int) -> Counts:
        """Return the CPU of each member if each may use `level`, but no more than it can use."""
        wanted: Counts = np.maximum(self.requested, np.minimum(self.usable, level))
        return wanted

    def only(self, which: Mask | Rows) -> "Use":
        """Return the use of the members that a mask or indexes select."""
        return Use(self.requested[which], self.usable[which])


@dataclass(frozen=True, slots=True)
class Cpu:
    """The CPU that the members to place can use, and the free CPU, in millicores.

    `unbound`: the use of these members.
    `free`: the free CPU, shape (rows,).
    `bound`: the use of the bound members of the job on nodes that still exist.
    `homes`: the rows of the bound members.
    """

    unbound: Use
    free: Amounts
    bound: Use
    homes: Rows

    def free_at(self, level: int) -> Amounts:
        """Return the free CPU if the bound members have `level`, shape (rows,)."""
        more = self.bound.at(level) - self.bound.requested
        used = np.bincount(self.homes, weights=more, minlength=len(self.free))
        free: Amounts = self.free - used.astype(np.int64)
        return free

    def suffices(self, rows: Rows, level: int) -> bool:
        """Return whether each member can have `level` on these rows, or all that it can use."""
        free = np.maximum(self.free_at(level), 0)
        used = np.bincount(rows, weights=self.unbound.at(level), minlength=len(free))
        return bool((used <= free)[rows].all())


def cpu_for(
    members: Sequence[Member],
    ledger: Ledger,
    bound: Assignment,
    *,
    assumed: int,
    ignoring: Collection[Hashable],
) -> Cpu:
    """Return the CPU for a job with `bound` members; `assumed`: the burst in millicores."""
    requested = [min(member.requests.get(CPU, 0), LARGEST) for member in members]
    usable = [min(most, _MAX_CPU) for most in usable_cpu(members, assumed=assumed)]
    least = np.array(requested, dtype=np.int64)
    use = Use(least, np.maximum(least, np.array(usable, dtype=np.int64)))
    rows = [ledger.row(bound[member.key]) if member.key in bound else None for member in members]
    at_home = [number for number, row in enumerate(rows) if row is not None]
    return Cpu(
        unbound=use.only(np.array([member.key not in bound for member in members])),
        free=ledger.free((CPU,), ignoring=ignoring)[0],
        bound=use.only(np.array(at_home, dtype=np.intp)),
        homes=np.array([row for row in rows if row is not None], dtype=np.intp),
    )


def with_most_cpu(task: Task, rows: Rows, *, free: Amounts, cpu: Cpu) -> Rows:
    """Return rows for the members such that the member with the least CPU has the most.

    `rows`: the solver's rows by requests; they are the result unless other rows give more CPU.
    `free`: the free amounts of the resources of the task's gang, shape (resources, rows).
    """
    best = rows
    level = int(cpu.unbound.usable.max())
    low, high = 0, level + 1  # the best level reached, and the lowest level out of reach
    for _ in range(_TRIES):
        better = best if cpu.suffices(best, level) else _solved(task, free, cpu, level)
        if better is None:
            high = min(level, int(cpu.free.max()) + 1)
        else:
            best, low = better, level
        if high - low <= 1:
            break
        level = (low + high) // 2
    return best


def _solved(task: Task, free: Amounts, cpu: Cpu, level: int) -> Rows | None:
    """Return the solver's answer as if each member requested the CPU that it has at a level."""
    gang, wanted = task.gang, cpu.unbound.at(level)
    resources = gang.resources if CPU in gang.resources else (*gang.resources, CPU)
    line = resources.index(CPU)
    ends = np.cumsum([batch.count for batch in gang.batches])
    cuts = np.union1d(np.flatnonzero(np.diff(wanted)) + 1, ends)
    numbers = np.searchsorted(ends, cuts)
    batches = []
    for end, count, number in zip(cuts, np.diff(cuts, prepend=0), numbers, strict=True):
        requests = np.append(gang.batches[number].requests, 0)[: len(resources)]
        requests[line] = wanted[end - 1]
        batches.append(Batch(int(count), requests, gang.batches[number].constraints))
    amounts = np.vstack((free, cpu.free))[: len(resources)]
    amounts[line] = cpu.free_at(level)
    raised = replace(
        task,
        gang=gang_of(gang.members, resources, batches),
        masks=[task.masks[number] for number in numbers],
        searches=False,  # nothing is refused here, so a hard placement may be missed
    )
    return solve(raised, amounts)


def in_words(members: Sequence[Member], *, assumed: int, one_node: bool) -> str:
    """Return why members use more nodes than their requests need, in words.

    `one_node`: whether their requests would fit one node.
    """
    usable = usable_cpu(members, assumed=assumed)
    low, high = min(usable), max(usable)
    amount = cpus(high) if low == high else f"{low / 1000:g} to {cpus(high)}"
    enough = f" and no node has {sum(usable) / 1000:g} free for them" if one_node else ""
    return f"each pod can use {amount}{enough}"
