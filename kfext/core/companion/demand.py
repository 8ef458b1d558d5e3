"""What pods would use if nothing restricted them, as far as their use shows it."""

from collections.abc import Sequence

from kfext.core.companion.budget import STOPPED
from kfext.core.companion.share_out import Part
from kfext.core.companion.signals import PodSignal
from kfext.model.qos import QoS

LEAST_LIMIT = 50
"""Millicores below which no limit goes: the slices of a CFS period get too short."""

_CONTENT = 0.5
"""The share of its part of a full node below which a pod wants no more."""
_BURSTS = 0.75
"""The share of a cap from which on it may stop a pod that works by bursts, whose mean is below."""


def is_stopped(pod: PodSignal) -> bool:
    """Return whether its limit keeps a pod from using more."""
    if pod.limit is None or pod.use is None:
        return False
    return pod.use >= STOPPED * pod.limit


def wanted(pod: PodSignal, *, most: int, full: bool, part: float) -> int:
    """Return the millicores that a pod wants, `most` if its use does not show it.

    `most`: what it may have at most. `full`: whether its node has nothing left. `part`: what CFS
    gives it on a full node; a pod that uses far less than that wants no more. Where the node has
    something left, one whose cap may stop it wants more.
    """
    if pod.use is None or is_stopped(pod):
        return most
    if full:
        return most if pod.use >= _CONTENT * part else min(pod.use, most)
    capped = pod.limit is not None and pod.limit < most
    return most if capped and pod.use >= _BURSTS * (pod.limit or 0) else min(pod.use, most)


def least_limit(pod: PodSignal) -> int:
    """Return the lowest limit that a pod may get.

    It stays above the request of a Burstable pod: as much as that may make it Guaranteed, and a
    resize that changes the QoS class is refused.
    """
    return max(LEAST_LIMIT, pod.request + 1 if pod.qos is QoS.BURSTABLE else 0)


def parts_of(pods: Sequence[PodSignal], most: Sequence[int]) -> list[Part]:
    """Return the parts that pods of one job have in a sum: by use, alike if it is not known."""
    known = all(pod.use is not None for pod in pods)
    return [
        Part(
            weight=float(pod.use or 0) if known else 1.0,
            least=min(least_limit(pod), limit),
            most=limit,
        )
        for pod, limit in zip(pods, most, strict=True)
    ]
