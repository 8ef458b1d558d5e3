"""A claim, which is one pod's share of one node; and all claims, by key, node and exclusive use."""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from kfext.model.gang_terms import Exclusive, GangTerm
from kfext.model.networking import Port
from kfext.model.quantity import Resources

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one pod, present or planned, takes from a node.

    `node`: the name of the node.
    `requests`: the amounts that it takes.
    `host_ports`: the ports of the node that it takes.
    `gang_terms`: the affinity and anti-affinity between the pods of its job.
    `job`: the uid of the training job that the pod belongs to, empty for all other pods.
    `priority`: the priority of the pod, None if there is no pod that could be preempted.
    `reserves`: the slot for which it has a GPU, which it gives back when no job has a part there.
    `kept`: whether it only keeps others out until a job that waits can be placed.
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
        """What no other pod of the node can have, and the terms that it has."""
        return (*self.host_ports, *self.gang_terms) if self.gang_terms else self.host_ports

    def covers(self, other: "Claim") -> bool:
        """Return whether this claim takes at least as much as another one."""
        return (
            self.node == other.node
            and set(other.exclusive) <= set(self.exclusive)
            and all(self.requests.get(name, 0) >= n for name, n in other.requests.items())
        )


class Claims:
    """Every claim, by its key."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Claim] = {}
        self._on_node: dict[str, set[Hashable]] = {}
        self._with: dict[Exclusive, set[Hashable]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Hashable) -> Claim | None:
        """Return the claim of a key."""
        return self._by_key.get(key)

    def all(self) -> dict[Hashable, Claim]:
        """Return a copy of every claim."""
        return dict(self._by_key)

    def add(self, key: Hashable, claim: Claim) -> None:
        """Add a claim under a key that has none."""
        self._by_key[key] = claim
        self._on_node.setdefault(claim.node, set()).add(key)
        for one in set(claim.exclusive):
            self._with.setdefault(one, set()).add(key)

    def remove(self, key: Hashable) -> Claim:
        """Remove the claim of a key and return it. Raises KeyError."""
        claim = self._by_key.pop(key)
        _discard(self._on_node, claim.node, key)
        # A user may write one thing twice, such as a term as affinity and as anti-affinity.
        for one in set(claim.exclusive):
            _discard(self._with, one, key)
        return claim

    def on(self, node: str, *, ignoring: Collection[Hashable] = ()) -> list[Claim]:
        """Return the claims on a node."""
        keys = self._on_node.get(node, ())
        return [self._by_key[key] for key in keys if key not in ignoring]

    def with_any(
        self, exclusive: Iterable[Exclusive], *, ignoring: Collection[Hashable] = ()
    ) -> list[Claim]:
        """Return the claims that have any of this."""
        keys = {key for one in exclusive for key in self._with.get(one, ())}
        return [self._by_key[key] for key in keys.difference(ignoring)]


def _discard(index: dict[K, set[Hashable]], at: K, key: Hashable) -> None:
    """Remove a key from an index that keeps no empty sets."""
    index[at].discard(key)
    if not index[at]:
        del index[at]
