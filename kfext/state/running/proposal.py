"""What a policy proposes: a change of a job, the job that gains, and the measure of the gain.

The proposals of all policies have one order, and a job gets one of them.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import assert_never

from kfext.model.policy import Mode
from kfext.state.running.signals import JobSignal, Signals


class Rank(IntEnum):
    """The order of proposals, whatever policy makes them."""

    RESTORE = 0
    """A job gets back what the user wrote."""
    DRAIN = 1
    """A job leaves its nodes: one is drained, or the job is stalled."""
    RESCUE = 2
    """Jobs make room for a waiting job."""
    PREEMPT = 3
    """Jobs stop for a waiting job."""
    SCALE = 4
    """A job gets more workers."""
    MOVE = 5
    """A job goes to other nodes."""
    RESIZE = 6
    """CPU moves between pods."""


class Measure(StrEnum):
    """What shows that a job has gained: its steps a second, or the CPU that it uses."""

    RATE = "rate"
    USE = "use"


@dataclass(frozen=True, slots=True)
class Size:
    """The CPU of a pod in millicores; None keeps what it has."""

    pod: str
    limit: int | None = None
    request: int | None = None


Stage = tuple[Size, ...]
"""Sizes that may be written together; the next stage waits until the kubelet has set them."""


@dataclass(frozen=True, slots=True)
class PodSizes:
    """New CPU for the pods of a job."""

    stages: tuple[Stage, ...]


class Cause(StrEnum):
    """Why the number of workers of a job changes."""

    GUARD = "guard"
    """The job makes room for a waiting job."""
    REGROW = "regrow"
    """The job returns to its requested size."""
    GROWTH = "growth"
    """The job gets more than its requested size."""
    TAKE_BACK = "takeBack"
    """The job loses workers that did not pay, or that found no node."""
    GIVE_BACK = "giveBack"
    """The job gets its user's size again, because kfext may no longer scale it."""


GAINS = frozenset({Cause.REGROW, Cause.GROWTH})
"""The job gets workers."""
RESTORES = frozenset({Cause.TAKE_BACK, Cause.GIVE_BACK})
"""A change is undone."""


@dataclass(frozen=True, slots=True)
class Rescue:
    """The workers that jobs give up together for a waiting job: all of them give, or no job.

    `waiting`: the uid of the waiting job, which then starts with `workers`.
    `sizes`: by uid, how many workers each donor keeps.
    """

    waiting: str
    workers: int
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Workers:
    """Another number of workers of a job; `rescue`: what the job gives workers for, if anything."""

    cause: Cause
    workers: int
    rescue: Rescue | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Other nodes for a whole job. They are found again when it moves."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop for the job with the uid `waiting`, together with the other `victims`, by uid.

    Without `waiting` the job leaves its nodes.
    """

    waiting: str = ""
    victims: tuple[str, ...] = ()


Change = PodSizes | Workers | Move | Stop
"""What a proposal changes; an executor carries out each kind."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of a job.

    `measure`: what has to show that the job has gained; None: no gain has to show.
    `reason`: a sentence for the job's owner; it names no other job.
    `disabled`: the policies that leave the job alone from then on, for the same reason.
    """

    policy: str
    job: str
    change: Change
    reason: str
    measure: Measure | None = None
    rank: Rank = Rank.RESIZE
    disabled: frozenset[str] = frozenset()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The sizes of pods to write, one stage after the other."""
        return self.change.stages if isinstance(self.change, PodSizes) else ()

    @property
    def cost(self) -> int:
        """The number of pods to write."""
        return sum(map(len, self.stages))


def in_stages(job: JobSignal, sizes: Iterable[Size]) -> tuple[Stage, ...]:
    """Return the sizes in stages: pods that shrink come first, so no CPU is given out twice."""
    before = {pod.uid: pod for pod in job.pods}
    shrinking: list[Size] = []
    growing: list[Size] = []
    for size in sizes:
        pod = before[size.pod]
        lower_limit = size.limit is not None and size.limit < (pod.limit or math.inf)
        lower = lower_limit or (size.request is not None and size.request < pod.request)
        (shrinking if lower else growing).append(size)
    return tuple(tuple(stage) for stage in (shrinking, growing) if stage)


def restore_proposal(
    policy: str, job: JobSignal, *, reason: str, disabled: Collection[str] = ()
) -> Proposal | None:
    """Return the proposal to restore what the user wrote, or None without a change.

    A proposal with `disabled` is made even with nothing to restore.
    """
    sizes = [
        Size(
            pod.uid,
            limit=pod.requested.limit if pod.limit != pod.requested.limit else None,
            request=pod.requested.request if pod.request != pod.requested.request else None,
        )
        for pod in job.pods
        if pod.resized
    ]
    if not sizes and not disabled:
        return None
    return Proposal(
        policy=policy,
        job=job.uid,
        change=PodSizes(in_stages(job, sizes)),
        reason=reason,
        rank=Rank.RESTORE,
        disabled=frozenset(disabled),
    )


def value_of(job: JobSignal, measure: Measure) -> float | None:
    """Return the present value of a measure of a job."""
    match measure:
        case Measure.RATE:
            return job.rate
        case Measure.USE:
            return job.use
        case _:
            assert_never(measure)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The proposals to carry out now, and the proposals that are only shown."""

    act: tuple[Proposal, ...] = ()
    observe: tuple[Proposal, ...] = ()

    def part(self, change: type[Change]) -> "Chosen":
        """Return the proposals of one kind of change."""
        act, observe = (
            tuple(proposal for proposal in part if isinstance(proposal.change, change))
            for part in (self.act, self.observe)
        )
        return Chosen(act, observe)


def arbitrate(proposals: Iterable[Proposal], signals: Signals) -> Chosen:
    """Return the chosen proposals, in the order in which they are carried out.

    The order is by rank, then by the number of pods written, fewest first, then as the policy made
    the proposals. A job gets one proposal. A policy that rests for a job, or that lost its
    permission, can only give back what it took. A proposal that is only shown does not keep another
    from acting.
    """
    jobs = {job.uid: job for job in signals.jobs}
    chosen: dict[Mode, dict[str, Proposal]] = {Mode.ACT: {}, Mode.OBSERVE: {}}
    for proposal in sorted(proposals, key=lambda each: (each.rank, each.cost, each.policy)):
        job = jobs.get(proposal.job)
        if job is not None:
            mode = _mode(proposal, job)
            if mode is not Mode.OFF:
                chosen[mode].setdefault(job.uid, proposal)
    acting, observed = chosen[Mode.ACT], chosen[Mode.OBSERVE]
    return Chosen(tuple(acting.values()), tuple(observed.values()))


def _mode(proposal: Proposal, job: JobSignal) -> Mode:
    """Return what may be done with a proposal; giving back and leaving is allowed in any mode."""
    if proposal.rank in {Rank.RESTORE, Rank.DRAIN}:
        return Mode.ACT
    choice = job.policies.get(proposal.policy)
    return Mode.OFF if choice is None or proposal.policy in job.disabled else choice.mode
