"""Clusters and gangs for the tests of the solver, and its answers."""

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
"""The requests of each member, its exclusive ports and terms, and the number of members."""


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


def gpu_nodes(gpus: Mapping[str, int]) -> Ledger:
    return ledger(*(node(name, gpus=count) for name, count in gpus.items()))


def numbered_nodes(gpus: Sequence[int]) -> Ledger:
    return gpu_nodes({f"n{number}": count for number, count in enumerate(gpus)})


def members_in(groups: Iterable[Group]) -> list[Member]:
    return [
        Member(
            key=ReplicaKey(f"type{kind}", index),
            requests=requests,
            constraints=Constraints(
                host_ports=tuple(term for term in exclusive if not isinstance(term, GangTerm)),
                apart=tuple(term for term in exclusive if isinstance(term, GangTerm)),
            ),
            guaranteed=True,
            cpu_limit=None,
        )
        for kind, (requests, exclusive, count) in enumerate(groups)
        for index in range(count)
    ]


def by_position(rows: Rows) -> NDArray[np.int64]:
    """A ranking in which the first row is the best."""
    return rows.astype(np.int64)


def holds(pool: Pool, gang: Gang, spots: Rows) -> bool:
    """Whether the members fit at these positions of a pool; -1 means that a member has none."""
    remaining = pool.free.copy()
    taken: set[tuple[int, Exclusive]] = set()
    start = 0
    for batch, mask in zip(gang.batches, pool.masks, strict=True):
        for spot in spots[start : start + batch.count]:
            wanted = {(int(spot), term) for term in batch.constraints.exclusive}
            if spot >= 0 and (not mask[spot] or taken & wanted):
                return False
            if spot >= 0:
                remaining[:, spot] -= batch.requests
                taken |= wanted
        start += batch.count
    # A resource that no pod here requests may be overcommitted.
    return start == len(spots) and bool(((remaining >= 0) | (remaining == pool.free)).all())
