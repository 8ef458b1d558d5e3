"""The solver: the node of every pod of a gang. Controller, CLI and simulator all use it.

It has two stages, as in CMS-DL: stage A chooses one node for the whole gang, or the smallest good
node set; stage B assigns each pod its node (core.placement.solve). Requests decide whether a gang
fits; then the CPU that the pods can use counts. This module collects the requirements of the gang
and the capacity of the nodes for both stages, and explains a refusal.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace

import numpy as np

from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.candidates import candidates
from kfext.core.placement.gang import Gang, Limits, Member, gang
from kfext.core.placement.no_place import no_place
from kfext.core.placement.score import BALANCE, DEFAULT, Rows, Weights, ranking, spread_reason
from kfext.core.placement.solve import Task, cpu_for, solve, with_most_cpu, without
from kfext.model.gang_terms import Exclusive
from kfext.model.plan import Assignment
from kfext.model.verdict import Verdict


def place(
    members: Sequence[Member],
    ledger: Ledger,
    limits: Limits,
    *,
    bound: Assignment | None = None,
    blamed: Collection[str] = (),
    ignoring: Collection[Hashable] = (),
    weights: Weights = DEFAULT,
    reserved: tuple[Collection[Hashable], str] = ((), ""),
) -> Assignment | Verdict:
    """Return the node of every member, or the refusal of the gang.

    `bound`: members that stay on their nodes; the other members are placed near them.
    `blamed`: nodes that are doubted even if they have `bound` members.
    `ignoring`: claims of the gang itself, which count as free.
    `reserved`: claims for another job, and its name in a refusal.
    `weights`: the costs of divisions over several nodes.

    The result is deterministic: ties are broken by node name. Doubted nodes are used only if no
    placement without them is found. A gang that no single node holds is placed in the narrowest
    topology domain that holds it, else in the next wider domain, else anywhere.
    """
    bound = bound or {}
    to_place = gang([member for member in members if member.key not in bound] if bound else members)
    if not to_place.members:
        return dict(bound)
    allowed = candidates(to_place, ledger, limits, ignoring=ignoring)
    limits, ledger = allowed.limits, allowed.ledger
    task = Task(
        gang=to_place,
        masks=allowed.open,
        ranking=ranking(to_place, ledger),
        weights=weights,
        homes=_rows(bound.values(), ledger),
        levels=ledger.domains(limits.topology_keys),
        max_nodes=limits.max_nodes,
    )
    free = ledger.free(to_place.resources, ignoring=ignoring)
    doubted = _rows(limits.doubted.difference({*bound.values()} - {*blamed}), ledger)
    for attempt in (without(task, doubted), task) if len(doubted) else (task,):
        rows = solve(attempt, free)
        if rows is None:
            continue
        if limits.assumed_burst is not None and not to_place.guaranteed:
            cpu = cpu_for(members, ledger, bound, assumed=limits.assumed_burst, ignoring=ignoring)
            rows = with_most_cpu(attempt, rows, free=free, cpu=cpu)
        return {**bound, **_named(to_place, rows, ledger)}
    empty = replace(task, masks=allowed.possible, levels=())
    claims, kept_for = reserved
    idle = ledger.free(to_place.resources, ignoring=(*ignoring, *claims)) if claims else free
    return no_place(
        to_place,
        allowed,
        free=np.stack((free, idle)),
        kept_for=kept_for,
        fits_empty=solve(empty, ledger.allocatable(to_place.resources)) is not None,
    )


def why_more_nodes(chosen: Assignment, fewest: Assignment | Verdict, *, why: str = BALANCE) -> str:
    """Return why a placement uses more nodes than it must, in words, or an empty string.

    `fewest`: the result of `place` for the same gang with the weights FEWEST, or without the rule
        that `why` names.
    """
    if isinstance(fewest, Verdict):
        return ""
    counts, least = (list(Counter(nodes.values()).values()) for nodes in (chosen, fewest))
    return spread_reason(counts, least, why=why)


def _rows(nodes: Collection[str], ledger: Ledger) -> Rows:
    """Return the rows of the nodes that still exist; a node that is named twice counts twice."""
    rows = [row for node in nodes if (row := ledger.row(node)) is not None]
    return np.array(sorted(rows), dtype=np.intp)


def _named(to_place: Gang, rows: Rows, ledger: Ledger) -> Assignment:
    nodes = [ledger.nodes[row] for row in rows]
    return {
        member.key: node.name
        for member, node in zip(to_place.members, nodes, strict=True)
        if node is not None
    }


def still_fits(
    members: Sequence[Member],
    ledger: Ledger,
    limits: Limits,
    *,
    assignment: Assignment,
    ignoring: Collection[Hashable] = (),
) -> bool:
    """Return whether every member still fits on its node in `assignment`.

    `ignoring`: the claims of the members themselves.
    """
    checked = gang(members)
    allowed = candidates(checked, ledger, limits, ignoring=ignoring)
    ledger = allowed.ledger
    positions = [ledger.row(assignment.get(member.key, "")) for member in checked.members]
    rows = np.array([row for row in positions if row is not None], dtype=np.intp)
    if not positions:
        return True
    nodes = [assignment[member.key] for member in checked.members if member.key in assignment]
    if len(rows) < len(positions) or not allowed.limits.allow(nodes):
        return False
    free = ledger.free(checked.resources, ignoring=ignoring)
    remaining = free.copy()
    taken: set[tuple[int, Exclusive]] = set()
    start = 0
    for batch, mask in zip(checked.batches, allowed.open, strict=True):
        batch_rows = rows[start : start + batch.count]
        start += batch.count
        remaining -= np.bincount(batch_rows, minlength=remaining.shape[1]) * batch.requests[:, None]
        exclusive = batch.constraints.exclusive
        wanted = {(int(row), item) for row in batch_rows for item in exclusive}
        clash = len(wanted) < batch.count * len(exclusive)
        if not mask[batch_rows].all() or clash or not taken.isdisjoint(wanted):
            return False
        taken |= wanted
    # Other pods may have overcommitted a resource that no member requests there.
    return bool(((remaining >= 0) | (remaining == free)).all())
