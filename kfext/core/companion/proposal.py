"""What a policy proposes: what changes of a job, whom that serves, and by what measure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import assert_never

from kfext.core.companion.signals import JobSignal, Signals
from kfext.model.qos import QoS


class Rank(IntEnum):
    """Which proposals come first, whatever policy makes them."""

    RESTORE = 0
    RESCUE = 1
    SCALE = 2
    RESIZE = 3


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
class PodSizes:
    """Other CPU limits of the pods of a job."""

    stages: tuple[Stage, ...]


class Cause(StrEnum):
    """Why the number of workers of a job changes."""

    GUARD = "guard"
    """It makes room for a job that waits."""
    REGROW = "regrow"
    """It gets back what it asked for."""
    GROWTH = "growth"
    """It gets more than it asked for."""
    TAKE_BACK = "takeBack"
    """It loses workers that did not pay, or that found no node."""
    GIVE_BACK = "giveBack"
    """It gets its user's size again, as kfext is not to scale it any more."""


GAINS = frozenset({Cause.REGROW, Cause.GROWTH})
RESTORES = frozenset({Cause.TAKE_BACK, Cause.GIVE_BACK})


@dataclass(frozen=True, slots=True)
class Rescue:
    """What jobs give up together so that a waiting job has a place: all of them, or no job.

    `waiting`: the uid of that job, which then starts with so many `workers`.
    `sizes`: by uid, how many workers each job keeps that gives.
    """

    waiting: str
    workers: int
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Workers:
    """Another number of workers of a job; `rescue`: what the job gives them up for, if it does."""

    cause: Cause
    workers: int
    rescue: Rescue | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of a job.

    `serves`: the uid of the job that is to gain, perhaps the same job, by the `measure`. Without a
        measure nothing has to be shown.
    `expected`: what that job shows by the measure without any such change, None if not known.
    `reason`: a sentence for the job's owner; it names no other job.
    `rests`: whether the policy leaves the job alone from then on.
    """

    policy: str
    job: str
    change: PodSizes | Workers
    reason: str
    serves: str
    measure: Measure | None = None
    expected: float | None = None
    rank: Rank = Rank.RESIZE
    rests: bool = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The sizes of pods that it writes, one stage after the other."""
        match self.change:
            case PodSizes(stages):
                return stages
            case Workers():
                return ()
            case _:
                assert_never(self.change)

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
        change=PodSizes(in_stages(job, sizes)),
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
