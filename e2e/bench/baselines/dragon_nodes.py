"""DRAGON's search for nodes: all of a job on one if possible, else where most of it goes first."""

from collections.abc import Sequence
from dataclasses import dataclass

Amounts = tuple[int, int]
"""CPU in millicores and memory in bytes."""
Free = dict[str, Amounts]
"""What each node could still hold; the order of the nodes is that in which they are looked at."""


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes of the servers and workers of a job; fewer of either if there is no more room."""

    servers: tuple[str, ...]
    workers: tuple[str, ...]


def schedule(free: Free, servers: Sequence[Amounts], workers: Sequence[Amounts]) -> Places:
    """Return where the pods of a job would go, the servers first."""
    pods = [*servers, *workers]
    counts = {node: fitting(amounts, pods) for node, amounts in free.items()}
    for node, count in counts.items():
        if count == len(pods):
            return Places((node,) * len(servers), (node,) * len(workers))

    def most(node: str) -> int:
        """Return how many of the servers or of the workers a node holds, whichever is more."""
        return max(min(counts[node], len(servers)), counts[node] - len(servers))

    best = max(free, key=most)  # the first of equals
    found: list[str] = []
    for node in [best, *(node for node in free if node != best)]:
        found += [node] * fitting(free[node], pods[len(found) :])
    return Places(tuple(found[: len(servers)]), tuple(found[len(servers) :]))


def plus(amounts: Amounts, more: Amounts, *, times: int = 1) -> Amounts:
    """Return a sum of amounts; `times`: how often `more` is added."""
    return amounts[0] + times * more[0], amounts[1] + times * more[1]


def holds(amounts: Amounts, pod: Amounts) -> bool:
    """Return whether a pod fits."""
    return amounts[0] >= pod[0] and amounts[1] >= pod[1]


def fitting(amounts: Amounts, pods: Sequence[Amounts]) -> int:
    """Return how many of some pods fit, one after the other."""
    for count, pod in enumerate(pods):
        if not holds(amounts, pod):
            return count
        amounts = plus(amounts, pod, times=-1)
    return len(pods)
