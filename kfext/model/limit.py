"""Limits on the nodes of a gang: which nodes its pods may use, and which nodes together."""

from collections.abc import Collection
from dataclasses import dataclass

from kfext.model.node import Node


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that allows everything. Equal limits give equal answers, so they are keys of caches.

    `why`: what is true of a node that it does not allow, after "N nodes". Empty: it concerns sets
        of nodes alone.
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
    """The gang is on at most so many nodes."""

    number: int

    def allow_set(self, nodes: Collection[str]) -> bool:
        """Return whether these are few enough."""
        return len(set(nodes)) <= self.number


@dataclass(frozen=True, slots=True)
class Excluded(Limit):
    """The gang failed on these nodes."""

    names: frozenset[str]
    why = "left out after failed attempts"

    def allows(self, node: Node) -> bool:
        """Return whether the gang has not failed on a node."""
        return node.name not in self.names


@dataclass(frozen=True, slots=True)
class Awaited(Limit):
    """These nodes came for a gang that still waits for the rest of its nodes."""

    names: frozenset[str]
    why = "new, and kept for a gang that waits for more nodes"

    def allows(self, node: Node) -> bool:
        """Return whether no gang awaits the rest of its nodes beside a node."""
        return node.name not in self.names


@dataclass(frozen=True, slots=True)
class KeptAnyway(Limit):
    """Only these nodes, which an autoscaler keeps for other pods."""

    names: frozenset[str]
    why = "kept for nothing else"

    def allows(self, node: Node) -> bool:
        """Return whether a node is kept for other pods."""
        return node.name in self.names
