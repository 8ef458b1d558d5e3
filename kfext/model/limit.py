"""Limits on the nodes of a gang: the nodes that its pods may use, and the allowed sets of nodes."""

from collections.abc import Collection
from dataclasses import dataclass

from kfext.model.node import Node


@dataclass(frozen=True, slots=True)
class Limit:
    """Base of the limits; it allows everything. Equal limits must agree: they are keys of caches.

    `why`: a description of the excluded nodes that follows "N nodes" in messages; empty for a limit
        that concerns only sets of nodes.
    """

    why = ""

    def allows(self, node: Node) -> bool:
        """Return whether a pod of the gang may use a node."""
        return True

    def allow_set(self, nodes: Collection[str]) -> bool:
        """Return whether the whole gang may be on these nodes."""
        return True


@dataclass(frozen=True, slots=True)
class MaxNodes(Limit):
    """Allows at most `number` nodes."""

    number: int

    def allow_set(self, nodes: Collection[str]) -> bool:
        """Return whether the set has at most `number` nodes."""
        return len(set(nodes)) <= self.number


@dataclass(frozen=True, slots=True)
class Excluded(Limit):
    """Excludes the nodes on which the gang failed."""

    names: frozenset[str]
    why = "left out after failed attempts"

    def allows(self, node: Node) -> bool:
        """Return whether the gang has not failed on a node."""
        return node.name not in self.names


@dataclass(frozen=True, slots=True)
class Awaited(Limit):
    """Excludes new nodes that are held for another gang, which still waits for more nodes."""

    names: frozenset[str]
    why = "new, and held for a gang that waits for more nodes"

    def allows(self, node: Node) -> bool:
        """Return whether a node is not held for another gang."""
        return node.name not in self.names


@dataclass(frozen=True, slots=True)
class KeptAnyway(Limit):
    """Allows only nodes that an autoscaler keeps anyway, for other pods."""

    names: frozenset[str]
    why = "in use by no other pod"

    def allows(self, node: Node) -> bool:
        """Return whether a node is kept for other pods."""
        return node.name in self.names
