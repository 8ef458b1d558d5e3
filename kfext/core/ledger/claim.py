"""A claim, which is one pod's share of one node; and all claims, indexed by key, node and port."""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from kfext.model.networking import Port
from kfext.model.quantity import Resources

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one pod, present or planned, takes from a node.

    `node`: the name of the node.
    `requests`: the amounts that it takes.
    `host_ports`: the ports of the node that it takes.
    `job`: the uid of the training job that the pod belongs to, empty for all other pods.
    `priority`: the priority of the pod, None if there is no pod that could be preempted.
    """

    node: str
    requests: Resources
    host_ports: tuple[Port, ...] = ()
    job: str = ""
    priority: int | None = None

    def covers(self, other: "Claim") -> bool:
        """Return whether this claim takes at least as much as another one."""
        return (
            self.node == other.node
            and set(other.host_ports) <= set(self.host_ports)
            and all(self.requests.get(name, 0) >= n for name, n in other.requests.items())
        )


class Claims:
    """Every claim, by its key."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Claim] = {}
        self._on_node: dict[str, set[Hashable]] = {}
        self._on_port: dict[Port, set[Hashable]] = {}

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
        for port in claim.host_ports:
            self._on_port.setdefault(port, set()).add(key)

    def remove(self, key: Hashable) -> Claim:
        """Remove the claim of a key and return it. Raises KeyError."""
        claim = self._by_key.pop(key)
        _discard(self._on_node, claim.node, key)
        for port in claim.host_ports:
            _discard(self._on_port, port, key)
        return claim

    def on(self, node: str, *, ignoring: Collection[Hashable] = ()) -> list[Claim]:
        """Return the claims on a node."""
        keys = self._on_node.get(node, ())
        return [self._by_key[key] for key in keys if key not in ignoring]

    def with_port(
        self, ports: Iterable[Port], *, ignoring: Collection[Hashable] = ()
    ) -> list[Claim]:
        """Return the claims that have one of the host ports."""
        keys = {key for port in ports for key in self._on_port.get(port, ())}
        return [self._by_key[key] for key in keys.difference(ignoring)]


def _discard(index: dict[K, set[Hashable]], at: K, key: Hashable) -> None:
    """Remove a key from an index that keeps no empty sets."""
    index[at].discard(key)
    if not index[at]:
        del index[at]
