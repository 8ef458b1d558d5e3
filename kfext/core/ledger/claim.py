"""A claim is the capacity that one pod uses on one node; it is found by key, node, port or term.

Questions such as "would it fit if all training jobs ended?" are asked for every waiting job, over
all claims of the cluster. Sums by tier answer them without reading each claim.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from kfext.core.ledger.columns import Amounts, Columns
from kfext.model.gang_terms import Exclusive, GangTerm
from kfext.model.networking import Port
from kfext.model.quantity import Resources

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Claim:
    """The capacity of a node that one pod, present or planned, uses.

    `host_ports`: the ports of the node that the pod uses.
    `gang_terms`: the affinity and anti-affinity between the pods of its job.
    `job`: the uid of the pod's training job; empty for other pods.
    `priority`: the priority of the pod; None means that there is no pod to preempt.
    `reserves`: for a reservation pod, the slot of its GPU; None for other pods.
    `kept`: whether the claim only keeps other jobs out until a waiting job can be placed.
    """

    node: str
    requests: Resources
    host_ports: tuple[Port, ...] = ()
    job: str = ""
    priority: int | None = None
    gang_terms: tuple[GangTerm, ...] = ()
    reserves: int | None = None
    kept: bool = False

    @property
    def exclusive(self) -> tuple[Exclusive, ...]:
        """The host ports and gang terms."""
        return (*self.host_ports, *self.gang_terms) if self.gang_terms else self.host_ports

    def covers(self, other: "Claim") -> bool:
        """Return whether this claim uses at least as much as another claim."""
        return (
            self.node == other.node
            and set(other.exclusive) <= set(self.exclusive)
            and all(self.requests.get(name, 0) >= n for name, n in other.requests.items())
        )


class Claims:
    """All claims, by key."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Claim] = {}
        self._on_node: dict[str, set[Hashable]] = {}
        self._by_exclusive: dict[Exclusive, set[Hashable]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Hashable) -> Claim | None:
        """Return the claim of a key, or None."""
        return self._by_key.get(key)

    def all(self) -> dict[Hashable, Claim]:
        """Return all claims by key, as a new dictionary."""
        return dict(self._by_key)

    def add(self, key: Hashable, claim: Claim) -> None:
        """Add a claim under a key that has none."""
        self._by_key[key] = claim
        self._on_node.setdefault(claim.node, set()).add(key)
        for item in set(claim.exclusive):
            self._by_exclusive.setdefault(item, set()).add(key)

    def remove(self, key: Hashable) -> Claim:
        """Remove the claim of a key and return it. Raises KeyError."""
        claim = self._by_key.pop(key)
        _discard(self._on_node, claim.node, key)
        # A user may write a port or term twice, such as a term as affinity and as anti-affinity.
        for item in set(claim.exclusive):
            _discard(self._by_exclusive, item, key)
        return claim

    def on(self, node: str, *, ignoring: Collection[Hashable] = ()) -> list[Claim]:
        """Return the claims on a node."""
        keys = self._on_node.get(node, ())
        return [self._by_key[key] for key in keys if key not in ignoring]

    def with_any(
        self, exclusive: Iterable[Exclusive], *, ignoring: Collection[Hashable] = ()
    ) -> list[Claim]:
        """Return the claims that have any of these ports and terms."""
        keys = {key for item in exclusive for key in self._by_exclusive.get(item, ())}
        return [self._by_key[key] for key in keys.difference(ignoring)]


def _discard(index: dict[K, set[Hashable]], entry: K, key: Hashable) -> None:
    """Remove a key from an entry of an index, and an empty entry from the index."""
    index[entry].discard(key)
    if not index[entry]:
        del index[entry]


class Tier(NamedTuple):
    """A class of claims: a query can only leave out whole tiers.

    `of_job`: whether the claims belong to training jobs or to GPUs that are reserved for sharing.
    `priority`: the priority of their pods; None means that there is no pod to preempt.
    """

    of_job: bool
    priority: int | None


Leaves = Callable[[Tier], bool]
"""A query's condition: whether the claims of a tier are assumed to leave."""


def below(priority: int) -> Leaves:
    """Return a condition: whether a pod of this priority may preempt the pods of a tier."""
    return lambda tier: tier.priority is not None and tier.priority < priority


def tier_of(claim: Claim) -> Tier:
    """Return the tier of a claim."""
    return Tier(bool(claim.job) or claim.reserves is not None, claim.priority)


class Tiers:
    """The claimed amounts by tier. There are at most two tiers for each priority in use."""

    def __init__(self) -> None:
        self._columns: dict[Tier, Columns] = {}
        self._claim_counts: dict[Tier, int] = {}
        self._resources: dict[str, None] = {}

    def learn(self, resources: Iterable[str]) -> None:
        """Count these resources from now on."""
        self._resources.update(dict.fromkeys(resources))
        for columns in self._columns.values():
            columns.learn(self._resources)

    def count(self, leaves: Leaves) -> int:
        """Return the number of claims that would leave."""
        return sum(number for tier, number in self._claim_counts.items() if leaves(tier))

    def count_claim(self, claim: Claim, times: int) -> None:
        """Count `times` more claims equal to this claim; a negative number subtracts."""
        tier = tier_of(claim)
        self._claim_counts[tier] = self._claim_counts.get(tier, 0) + times
        if not self._claim_counts[tier]:
            del self._claim_counts[tier]
            self._columns.pop(tier, None)

    def book(self, row: int, claim: Claim, times: int) -> None:
        """Add the amounts of `times` equal claims to a row; a negative number subtracts."""
        self._columns_of(claim, row).book(row, claim.requests, times)

    def book_one(self, row: int, resource: str, claim: Claim) -> None:
        """Add the amount of one resource of a claim to a row."""
        number = claim.requests.get(resource, 0)
        self._columns_of(claim, row).book_one(row, resource, number, +1)

    def _columns_of(self, claim: Claim, row: int) -> Columns:
        tier = tier_of(claim)
        columns = self._columns.get(tier)
        if columns is None:
            columns = self._columns[tier] = Columns()
            columns.learn(self._resources)
        while columns.width <= row:
            columns.widen()
        return columns

    def clear(self, row: int) -> None:
        """Set all amounts of a row to zero."""
        for columns in self._columns.values():
            if row < columns.width:
                columns.clear(row)

    def claimed(self, resource: str, leaves: Leaves) -> Amounts:
        """Return the amount of a resource that the leaving tiers claim, shape (rows,)."""
        amounts = [columns.claimed(resource) for columns in self.leaving(leaves)]
        total = np.zeros(max((len(each) for each in amounts), default=0), dtype=np.int64)
        for each in amounts:
            total[: len(each)] += each
        return total

    def leaving(self, leaves: Leaves) -> list[Columns]:
        """Return the amounts of the tiers that would leave."""
        return [columns for tier, columns in self._columns.items() if leaves(tier)]
