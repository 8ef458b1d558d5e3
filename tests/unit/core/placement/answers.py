"""Clusters and gangs for the solver, and its answers."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Gang, Member
from kfext.core.placement.place import place
from kfext.core.placement.pool import Pool
from kfext.core.placement.score import DEFAULT, Rows, Weights
from kfext.model.constraints import Constraints
from kfext.model.gang_terms import Exclusive, GangTerm
from kfext.model.plan import Assignment
from kfext.model.pod import ReplicaKey
from kfext.model.quantity import Resources
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, ledger, limits, node

GPU = "nvidia.com/gpu"

Group = tuple[Resources, tuple[Exclusive, ...], int]
"""The request of each member, its exclusive terms, and the number of members."""


def nodes_of(result: Assignment | Verdict) -> list[str]:
    """The node of each member in rank order."""
    assert not isinstance(result, Verdict), result
    return list(result.values())


def verdict_of(result: Assignment | Verdict) -> Verdict:
    assert isinstance(result, Verdict), result
    return result


def placed(
    builder: JobBuilder,
    capacity: Ledger,
    *,
    max_nodes: int | None = None,
    weights: Weights = DEFAULT,
) -> list[str]:
    return nodes_of(
        place(builder.members(), capacity, limits(max_nodes=max_nodes), weights=weights)
    )


def gpus(capacity: Mapping[str, int]) -> Ledger:
    return ledger(*(node(name, gpus=count) for name, count in capacity.items()))


def numbered(capacity: Sequence[int]) -> Ledger:
    return gpus({f"n{number}": count for number, count in enumerate(capacity)})


def members_in(groups: Iterable[Group]) -> list[Member]:
    return [
        Member(
            key=ReplicaKey(f"type{kind}", index),
            requests=requests,
            constraints=Constraints(
                host_ports=tuple(
                    claimed for claimed in exclusive if not isinstance(claimed, GangTerm)
                ),
                apart=tuple(claimed for claimed in exclusive if isinstance(claimed, GangTerm)),
            ),
            guaranteed=True,
            cpu_limit=None,
        )
        for kind, (requests, exclusive, count) in enumerate(groups)
        for index in range(count)
    ]


def by_position(rows: Rows) -> NDArray[np.int64]:
    """A ranking of rows: the first is the best."""
    return rows.astype(np.int64)


def holds(pool: Pool, gang: Gang, spots: Rows) -> bool:
    """Whether the members fit at these positions of a pool; -1 means no place."""
    left = pool.free.copy()
    taken: set[tuple[int, Exclusive]] = set()
    start = 0
    for batch, mask in zip(gang.batches, pool.masks, strict=True):
        for spot in spots[start : start + batch.count]:
            wanted = {(int(spot), claimed) for claimed in batch.constraints.exclusive}
            if spot >= 0 and (not mask[spot] or taken & wanted):
                return False
            if spot >= 0:
                left[:, spot] -= batch.requests
                taken |= wanted
        start += batch.count
    # A resource that no pod here requests may be overcommitted.
    return start == len(spots) and bool(((left >= 0) | (left == pool.free)).all())
