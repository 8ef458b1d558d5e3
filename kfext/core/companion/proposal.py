"""What a policy proposes: new sizes of a job's pods, whom that serves, and by what measure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import assert_never

from kfext.core.companion.signals import JobSignal, Signals
from kfext.model.qos import QoS


class Rank(IntEnum):
    """Which proposals come first, whatever policy makes them."""

    RESTORE = 0
    RESIZE = 1


class Measure(StrEnum):
    """By what it shows that a job has gained: its steps a second, or the CPU that it uses."""

    RATE = "rate"
    USE = "use"


@dataclass(frozen=True, slots=True)
class Size:
    """The CPU of a pod in millicores; the request stays what it is if that is None."""

    pod: str
    limit: int
    request: int | None = None


Stage = tuple[Size, ...]
"""Sizes that may be written together; the next stage waits until the kubelet has them all."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of one job.

    `serves`: the uid of the job that is to gain, perhaps itself, by the `measure`. Without a
        measure it only gives back what was taken, and nothing has to be shown.
    `expected`: what that job shows by the measure without any such change, None if not known.
    `reason`: a sentence for the job's owner; it names no other job.
    `rests`: whether the policy leaves the job alone from then on.
    """

    policy: str
    job: str
    stages: tuple[Stage, ...]
    reason: str
    serves: str
    measure: Measure | None = None
    expected: float | None = None
    rank: Rank = Rank.RESIZE
    rests: bool = False

    @property
    def cost(self) -> int:
        """How many pods it writes."""
        return sum(map(len, self.stages))


def in_stages(job: JobSignal, sizes: Iterable[Size]) -> tuple[Stage, ...]:
    """Return sizes in stages: those that shrink first, so that nothing is handed out twice."""
    before = {pod.uid: pod for pod in job.pods}
    shrinking: list[Size] = []
    growing: list[Size] = []
    for size in sizes:
        limit = before[size.pod].limit
        (shrinking if limit is None or size.limit < limit else growing).append(size)
    return tuple(tuple(stage) for stage in (shrinking, growing) if stage)


def give_back(
    policy: str, job: JobSignal, signals: Signals, *, reason: str, rests: bool
) -> Proposal | None:
    """Return the proposal to restore what the user wrote, None if that changes nothing.

    With nothing to restore it still makes the policy rest.
    """
    sizes = [
        Size(
            pod.uid,
            limit=signals.open_limit(pod),
            request=signals.open_limit(pod) if pod.qos is QoS.GUARANTEED else None,
        )
        for pod in job.pods
        if pod.limit is not None and pod.limit != signals.open_limit(pod)
    ]
    if not sizes and not rests:
        return None
    return Proposal(
        policy=policy,
        job=job.uid,
        stages=in_stages(job, sizes),
        reason=reason,
        serves=job.uid,
        rank=Rank.RESTORE,
        rests=rests,
    )


def restricts(proposal: Proposal, job: JobSignal, signals: Signals) -> bool:
    """Return whether a pod of a job gets a lower limit by a proposal for it than it has."""
    now = {pod.uid: signals.open_limit(pod) if pod.limit is None else pod.limit for pod in job.pods}
    return any(size.limit < now.get(size.pod, 0) for stage in proposal.stages for size in stage)


def measured(job: JobSignal, measure: Measure) -> float | None:
    """Return what a job shows by a measure now."""
    match measure:
        case Measure.RATE:
            return job.rate
        case Measure.USE:
            return job.use
        case _:
            assert_never(measure)
