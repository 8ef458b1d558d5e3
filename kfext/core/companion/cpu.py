"""CPU within bounds: what a pod wants, the least that it may get, and how a sum is divided."""

from collections.abc import Sequence
from dataclasses import dataclass

from kfext.core.companion.signals import STOPPED, PodSignal
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Resize
from kfext.model.policy import Mode
from kfext.model.qos import QoS

_TINY = 1e-6
"""What a float may lack of a whole number."""


_MODES = {Resize.OFF: Mode.OFF, Resize.OBSERVE: Mode.OBSERVE, Resize.CPU: Mode.ACT}


def opted_in(settings: Settings) -> Mode:
    """Return the most that a job lets the policies do that change the CPU of its pods."""
    return _MODES[settings.resize]


@dataclass(frozen=True, slots=True)
class Part:
    """A participant: its weight, and the least and the most that it may get."""

    weight: float
    least: int
    most: int


def share_out(total: int, parts: Sequence[Part]) -> list[int]:
    """Return what each part gets: in proportion to the weights, within the bounds.

    The sum is the total, as far as the bounds allow it. Whole millicores go to the largest
    remainders, in the order of the parts where these are equal; without weights all count alike.
    """
    rest = float(
        min(max(total, sum(part.least for part in parts)), sum(part.most for part in parts))
    )
    given = [0.0] * len(parts)
    free = list(range(len(parts)))
    while free:
        weights = sum(parts[at].weight for at in free)
        for at in free:
            share = parts[at].weight / weights if weights > 0 else 1 / len(free)
            given[at] = rest * share
        low = [at for at in free if given[at] < parts[at].least]
        high = [at for at in free if given[at] > parts[at].most]
        if not low and not high:
            break
        lack = sum(parts[at].least - given[at] for at in low)
        excess = sum(given[at] - parts[at].most for at in high)
        # The side that is further out stays at its bound whatever happens to the other one.
        fixed = low if lack >= excess else high
        for at in fixed:
            given[at] = parts[at].least if fixed is low else parts[at].most
            rest -= given[at]
        free = [at for at in free if at not in fixed]
    return _whole(given)


def _whole(given: Sequence[float]) -> list[int]:
    """Round amounts so that their sum, which is a whole number, is kept."""
    rounded = [int(amount + _TINY) for amount in given]
    missing = round(sum(given)) - sum(rounded)
    nearest = sorted(range(len(given)), key=lambda at: rounded[at] - given[at])
    for at in nearest[:missing]:
        rounded[at] += 1
    return rounded


LEAST_LIMIT = 50
"""Millicores below which no limit goes: the slices of a CFS period get too short."""

_CONTENT = 0.5
"""The share of its part of a full node below which a pod wants no more."""
_BURSTS = 0.75
"""The share of a cap from which on the cap may stop a pod that works by bursts."""


def is_stopped(pod: PodSignal) -> bool:
    """Return whether its limit keeps a pod from using more."""
    if pod.limit is None or pod.use is None:
        return False
    return pod.use >= STOPPED * pod.limit


def wanted(pod: PodSignal, *, most: int, full: bool, part: float) -> int:
    """Return the millicores that a pod wants, `most` if its use does not show it.

    `most`: what it may have at most. `full`: whether its node has nothing left. `part`: what CFS
    gives it on a full node; a pod that uses far less than that wants no more. Where the node has
    something left, a pod that its cap may stop wants more.
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
    """Return the parts that pods of a job have in a sum: by use, alike if it is not known."""
    known = all(pod.use is not None for pod in pods)
    return [
        Part(
            weight=float(pod.use or 0) if known else 1.0,
            least=min(least_limit(pod), limit),
            most=limit,
        )
        for pod, limit in zip(pods, most, strict=True)
    ]
