"""The second level of the choice of nodes: the CPU that pods can use beyond what they request.

What fits is decided by requests alone. Of all that fits, the placement is chosen that gives the pod
with the least CPU the most: all pods go to one node if it has enough free for each of them to use
what it can; else to the nodes on which each gets most. For each amount the solver answers where a
gang that requests as much would go. No gang is refused, or made smaller, for what it cannot get.

Free is what others have not requested. Under load the kernel divides the CPU of a node by requests,
and most pods use far less than they can: counted by that, most nodes would have nothing left.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kfext.core.ledger.columns import LARGEST, Amounts
from kfext.core.ledger.fit import Mask
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.division import Counts
from kfext.core.placement.gang import Batch, Member, gang_of
from kfext.core.placement.score import Rows
from kfext.core.placement.solve import Task, solve
from kfext.core.placement.usable import usable_cpu
from kfext.core.words import cpus
from kfext.model.plan import Assignment
from kfext.model.quantity import CPU

_TRIES = 6
"""How many amounts are tried; the last two differ by at most 1/32 of the freest node's."""
_MOST_CPU = 2**40
"""No node has as much, and sums of it have 64 bits."""


@dataclass(frozen=True, slots=True)
class Use:
    """What each of some members requests of the CPU, and what it can use, in millicores."""

    requested: Counts
    usable: Counts

    def at(self, level: int) -> Counts:
        """Return what each takes where none of them has to do with less than `level`."""
        wanted: Counts = np.maximum(self.requested, np.minimum(self.usable, level))
        return wanted

    def only(self, which: Mask | Rows) -> "Use":
        """Return the use of some of the members."""
        return Use(self.requested[which], self.usable[which])


@dataclass(frozen=True, slots=True)
class Cpu:
    """The CPU that the members to be placed can use, and what they find.

    `own`: the use of these members.
    `free`: what is free, shape (rows,).
    `bound`: the use of the other members of the job, as far as their nodes still exist.
    `homes`: the rows of those nodes.
    """

    own: Use
    free: Amounts
    bound: Use
    homes: Rows

    def left(self, level: int) -> Amounts:
        """Return what is free if the bound members have `level`, shape (rows,)."""
        more = self.bound.at(level) - self.bound.requested
        taken = np.bincount(self.homes, weights=more, minlength=len(self.free))
        left: Amounts = self.free - taken.astype(np.int64)
        return left

    def gives(self, rows: Rows, level: int) -> bool:
        """Return whether no member there has to do with less than `level`, or than it can use."""
        left = np.maximum(self.left(level), 0)
        taken = np.bincount(rows, weights=self.own.at(level), minlength=len(left))
        return bool((taken <= left)[rows].all())


def cpu_for(
    members: Sequence[Member],
    ledger: Ledger,
    bound: Assignment,
    *,
    assumed: int,
    ignoring: Collection[Hashable],
) -> Cpu:
    """Return the CPU for the members of a job that are not bound; `ignoring` as for `place`."""
    requested = [min(member.requests.get(CPU, 0), LARGEST) for member in members]
    usable = [min(most, _MOST_CPU) for most in usable_cpu(members, assumed=assumed)]
    least = np.array(requested, dtype=np.int64)
    use = Use(least, np.maximum(least, np.array(usable, dtype=np.int64)))
    rows = [ledger.row(bound[one.key]) if one.key in bound else None for one in members]
    at_home = [number for number, row in enumerate(rows) if row is not None]
    return Cpu(
        own=use.only(np.array([member.key not in bound for member in members])),
        free=ledger.free((CPU,), ignoring=ignoring)[0],
        bound=use.only(np.array(at_home, dtype=np.intp)),
        homes=np.array([row for row in rows if row is not None], dtype=np.intp),
    )


def roomiest(task: Task, rows: Rows, *, free: Amounts, cpu: Cpu) -> Rows:
    """Return the row of each member where the one with the least CPU has the most.

    `rows` are the solver's by requests; they stay if no others give more. `free` has the resources
    of the task's gang, shape (resources, rows).
    """
    best = rows
    level = int(cpu.own.usable.max())
    low, high = 0, level + 1  # what each gets at least, and what no nodes give
    for _ in range(_TRIES):
        found = best if cpu.gives(best, level) else _solved(task, free, cpu, level)
        if found is None:
            high = min(level, int(cpu.free.max()) + 1)
        else:
            best, low = found, level
        if high - low <= 1:
            break
        level = (low + high) // 2
    return best


def _solved(task: Task, free: Amounts, cpu: Cpu, level: int) -> Rows | None:
    """Return the solver's answer for a gang that requests what its members have at a level."""
    gang, wanted = task.gang, cpu.own.at(level)
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
    left = np.vstack((free, cpu.free))[: len(resources)]
    left[line] = cpu.left(level)
    raised = replace(
        task,
        gang=gang_of(gang.members, resources, batches),
        masks=[task.masks[number] for number in numbers],
        searches=False,  # this is no refusal, so it may miss what is hard to find
    )
    return solve(raised, left)


def in_words(members: Sequence[Member], *, assumed: int, one_node: bool) -> str:
    """Return why members are on more nodes than their requests need; `one_node`: than that one."""
    usable = usable_cpu(members, assumed=assumed)
    low, high = min(usable), max(usable)
    each = cpus(high) if low == high else f"{low / 1000:g} to {cpus(high)}"
    enough = f" and no node has {sum(usable) / 1000:g} free for them" if one_node else ""
    return f"each pod can use {each}{enough}"
