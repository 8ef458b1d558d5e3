"""The changes of jobs that policies propose, and the choice of at most one for each job."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import assert_never

from kfext.model.policy import Mode
from kfext.state.running.signals import JobSignal, Signals


class Rank(IntEnum):
    """The order in which the proposals of all policies are carried out, the lowest rank first."""

    RESTORE = 0
    """The user's values are restored."""
    DRAIN = 1
    """A job leaves its nodes because a node is drained or the job is stalled."""
    RESCUE = 2
    """Jobs scale down for a waiting job."""
    PREEMPT = 3
    """Jobs stop for a waiting job."""
    SCALE = 4
    """A job scales up."""
    MOVE = 5
    """A job moves to other nodes."""
    RESIZE = 6
    """CPU moves between pods."""


class Measure(StrEnum):
    """The measure of a job's gain: its steps a second, or its CPU use."""

    RATE = "rate"
    USE = "use"


@dataclass(frozen=True, slots=True)
class Size:
    """The new CPU of the pod with the uid `pod`, in millicores; None means unchanged."""

    pod: str
    limit: int | None = None
    request: int | None = None


Stage = tuple[Size, ...]
"""Sizes that are written together; the next stage waits until the kubelets have set them."""


@dataclass(frozen=True, slots=True)
class PodSizes:
    """New CPU for the pods of a job."""

    stages: tuple[Stage, ...]


class Cause(StrEnum):
    """Why the number of workers of a job changes. The values are stored in the job's state."""

    RESCUE = "guard"
    """The job scales down for a waiting job."""
    REGROW = "regrow"
    """The job returns to its requested size."""
    GROWTH = "growth"
    """The job scales up beyond its requested size."""
    UNDO_GROWTH = "takeBack"
    """Growth is undone because it did not pay, or because new workers found no node."""
    RESTORE_REQUESTED = "giveBack"
    """The requested size is restored because kfext may no longer scale the job."""


GAINS = frozenset({Cause.REGROW, Cause.GROWTH})
"""The causes that add workers."""
RESTORES = frozenset({Cause.UNDO_GROWTH, Cause.RESTORE_REQUESTED})
"""The causes that undo a change."""


@dataclass(frozen=True, slots=True)
class Rescue:
    """The donors of a waiting job, which scale down together or not at all.

    `waiting`: the uid of the waiting job. `workers`: the number of workers that it starts with.
    `sizes`: the number of workers that each donor keeps, by uid.
    """

    waiting: str
    workers: int
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Workers:
    """A new number of workers of a job; `rescue`: the rescue in which the job is a donor."""

    cause: Cause
    workers: int
    rescue: Rescue | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a whole job; its new nodes are chosen when it stops."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of a job for a waiting job, or, without `waiting`, to leave its nodes.

    `waiting`: the uid of the waiting job. `victims`: the uids of all jobs that stop for it.
    """

    waiting: str = ""
    victims: tuple[str, ...] = ()


Change = PodSizes | Workers | Move | Stop
"""The change of a proposal; each kind has an executor."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of a job that a policy wants.

    `policy`: the name of the policy. `job`: the uid of the job.
    `measure`: what the trial after the change compares; None means no trial.
    `reason`: a sentence for the job's user, without the name of another job.
    `disabled`: the policies that the change disables for the job, for the same reason.
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
        """The sizes of pods to write, stage by stage."""
        return self.change.stages if isinstance(self.change, PodSizes) else ()

    @property
    def cost(self) -> int:
        """The number of pod writes."""
        return sum(map(len, self.stages))


def in_stages(job: JobSignal, sizes: Iterable[Size]) -> tuple[Stage, ...]:
    """Return the sizes in stages: pods shrink first, so that no CPU is allocated twice."""
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
    """Return the proposal to restore the user's CPU and to disable the policies `disabled`.

    Return None for a job with the user's CPU if no policy is to be disabled.
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
    """Return the present value of a measure; None means that it is not measured yet."""
    match measure:
        case Measure.RATE:
            return job.rate
        case Measure.USE:
            return job.use
        case _:
            assert_never(measure)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The proposals to carry out now (`act`), and the dry runs that are only shown (`observe`)."""

    act: tuple[Proposal, ...] = ()
    observe: tuple[Proposal, ...] = ()

    def of_kind(self, change: type[Change]) -> "Chosen":
        """Return the proposals of one kind of change."""
        act, observe = (
            tuple(proposal for proposal in proposals if isinstance(proposal.change, change))
            for proposals in (self.act, self.observe)
        )
        return Chosen(act, observe)


def arbitrate(proposals: Iterable[Proposal], signals: Signals) -> Chosen:
    """Return the chosen proposals in the order of execution, at most one for each job.

    The order is by rank, then by the number of pod writes, fewest first, then by the name of the
    policy, then as proposed. A policy that is disabled or off for a job can only restore. A dry run
    does not prevent another proposal for the job from acting.
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
    """Return the mode of a proposal; restores and drains act in any mode of the policy."""
    if proposal.rank in {Rank.RESTORE, Rank.DRAIN}:
        return Mode.ACT
    choice = job.policies.get(proposal.policy)
    return Mode.OFF if choice is None or proposal.policy in job.disabled else choice.mode
