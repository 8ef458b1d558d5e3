"""Which proposals are carried out: one order for all policies, and one operation for each job.

A policy visits jobs that share nodes at its interval, and less often while no job grows.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kfext.core.progress.reported import GrowthState
from kfext.model.backoff import exponential_backoff
from kfext.model.policy import Mode
from kfext.state.running.proposal import Proposal, Rank
from kfext.state.running.signals import JobSignal, Signals

MOST_INTERVALS = 8
"""The longest back-off, in intervals."""

Neighbours = frozenset[str]
"""The uids of jobs that share nodes, directly or through others."""


def neighbourhoods(jobs: Iterable[JobSignal]) -> list[tuple[JobSignal, ...]]:
    """Return the jobs in groups without a common node, each group in order of uid."""
    ordered = sorted(jobs, key=_uid)
    group_of: dict[str, list[JobSignal]] = {}
    groups: dict[int, list[JobSignal]] = {}
    for job in ordered:
        met = {id(group): group for node in job.nodes if (group := group_of.get(node)) is not None}
        largest = max(met.values(), key=len, default=[])
        groups[id(largest)] = largest
        for group in met.values():
            if group is not largest:
                # The smaller group joins the larger, so a job changes its group only a few times.
                largest += group
                del groups[id(group)]
                group_of |= {node: largest for member in group for node in member.nodes}
        largest.append(job)
        group_of |= dict.fromkeys(job.nodes, largest)
    return [tuple(sorted(group, key=_uid)) for group in groups.values()]


@dataclass(slots=True)
class _Turn:
    """When a policy last visited neighbours, and how often in a row nothing grew.

    `first`: whether that was the first visit.
    """

    at: float
    idle: int = 0
    first: bool = False


class Cadence:
    """Follows one policy. A job that comes or goes makes new neighbours, which are due at once.

    They stay due for one interval, because some of their figures are older than the change.
    """

    def __init__(self) -> None:
        self._turns: dict[Neighbours, _Turn] = {}

    def due(
        self, jobs: Iterable[JobSignal], *, interval: Callable[[JobSignal], float], now: float
    ) -> list[JobSignal]:
        """Return the jobs that are due now; the shortest interval of neighbours counts, in seconds.

        While all neighbours are completing, the interval doubles each time, up to eightfold. It
        does not double if they show how far they are, since the order of their ends matters then.
        Neighbours stay due while an operation is in flight, because arbitration drops proposals for
        that job.
        """
        due: list[JobSignal] = []
        turns: dict[Neighbours, _Turn] = {}
        for group in neighbourhoods(jobs):
            key = frozenset(job.uid for job in group)
            turn = self._turns.get(key)
            busy = any(job.in_flight or job.settling for job in group)
            completing = not busy and all(
                job.state is GrowthState.COMPLETING and job.left is None for job in group
            )
            idle = turn.idle if turn is not None and completing else 0
            shortest = min(map(interval, group))
            wait = exponential_backoff(idle + 1, first=shortest, longest=MOST_INTERVALS * shortest)
            if turn is None or now >= turn.at + wait:
                turn = _Turn(
                    at=-math.inf if busy else now,
                    idle=idle + 1 if completing else 0,
                    first=turn is None,
                )
                due += group
            elif turn.first and now < turn.at + shortest:
                due += group
            turns[key] = turn
        self._turns = turns
        return due


@dataclass(frozen=True, slots=True)
class Chosen:
    """The proposals to carry out now, and the proposals that are only shown."""

    act: tuple[Proposal, ...] = ()
    observe: tuple[Proposal, ...] = ()


def arbitrate(proposals: Iterable[Proposal], signals: Signals) -> Chosen:
    """Return the chosen proposals, in the order in which they are carried out.

    The order is by rank, then by the number of pods written, fewest first, then as the policy made
    the proposals. A job gets one proposal. A policy that rests for a job, or that lost its
    permission, can only give back what it took. A proposal that is only shown does not keep another
    from acting.
    """
    jobs = {job.uid: job for job in signals.jobs}
    chosen: dict[Mode, dict[str, Proposal]] = {Mode.ACT: {}, Mode.OBSERVE: {}}
    for proposal in sorted(proposals, key=_turn):
        job = jobs.get(proposal.job)
        if job is not None:
            mode = _mode(proposal, job)
            if mode is not Mode.OFF:
                chosen[mode].setdefault(job.uid, proposal)
    acting, observed = chosen[Mode.ACT], chosen[Mode.OBSERVE]
    return Chosen(tuple(acting.values()), tuple(observed.values()))


def _turn(proposal: Proposal) -> tuple[Rank, int, str]:
    return (proposal.rank, proposal.cost, proposal.policy)


def _mode(proposal: Proposal, job: JobSignal) -> Mode:
    """Return what may be done with a proposal; giving back is allowed in every mode."""
    if proposal.rank is Rank.RESTORE:
        return Mode.ACT
    choice = job.policies.get(proposal.policy)
    return Mode.OFF if choice is None or proposal.policy in job.rests else choice.mode


def _uid(job: JobSignal) -> str:
    return job.uid
