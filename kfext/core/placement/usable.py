"""How much CPU the pods of a job can use: what the second level of the choice of nodes counts."""

from collections.abc import Sequence
from typing import Protocol

from kfext.model.quantity import COMMON, CPU, Resources


class CpuBound(Protocol):
    """A pod, or what all pods of one template are."""

    @property
    def requests(self) -> Resources:
        """Its requests."""

    @property
    def cpu_limit(self) -> int | None:
        """The millicores that it can use, None if nothing limits it."""


def can_burst(pods: Sequence[CpuBound], *, assumed: int) -> bool:
    """Return whether one of some pods of one job can use more CPU than it requests."""
    both = zip(pods, usable_cpu(pods, assumed=assumed), strict=True)
    return any(usable > pod.requests.get(CPU, 0) for pod, usable in both)


def usable_cpu(pods: Sequence[CpuBound], *, assumed: int) -> list[int]:
    """Return the millicores that each of some pods of one job can use, at least its request.

    That is its limit, else what is `assumed`. It is the request if a pod of the job requests what
    not every node has: GPUs then do the work, and decide on the nodes.
    """
    requested = [pod.requests.get(CPU, 0) for pod in pods]
    if not all(COMMON.issuperset(pod.requests) for pod in pods):
        return requested
    return [
        max(least, assumed if pod.cpu_limit is None else pod.cpu_limit)
        for pod, least in zip(pods, requested, strict=True)
    ]
