"""Which proposals are carried out: one order for all policies, and one operation for each job.

And when a policy looks at jobs that share nodes: at its interval, less often while no job grows.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kfext.core.companion.proposal import Proposal, Rank
from kfext.core.companion.signals import JobSignal, Signals
from kfext.core.progress.reported import GrowthState
from kfext.model.backoff import exponential_backoff
from kfext.model.policy import Mode

MOST_INTERVALS = 8
"""The back-off ends here, in intervals."""

Neighbours = frozenset[str]
"""The uids of jobs that share nodes, directly or through others."""


def neighbourhoods(jobs: Iterable[JobSignal]) -> list[tuple[JobSignal, ...]]:
    """Return the jobs in groups that have no node in common; each group is in order of uid."""
    ordered = sorted(jobs, key=_uid)
    group_of: dict[str, list[JobSignal]] = {}
    groups: dict[int, list[JobSignal]] = {}
    for job in ordered:
        met = {id(group): group for node in job.nodes if (group := group_of.get(node)) is not None}
        largest = max(met.values(), key=len, default=[])
        groups[id(largest)] = largest
        for group in met.values():
            if group is not largest:
                # The smaller joins the larger, so that a job changes its group a few times only.
                largest += group
                del groups[id(group)]
                group_of |= {node: largest for member in group for node in member.nodes}
        largest.append(job)
        group_of |= dict.fromkeys(job.nodes, largest)
    return [tuple(sorted(group, key=_uid)) for group in groups.values()]


@dataclass(slots=True)
class _Turn:
    """When neighbours were looked at last, and how often in a row nothing grew then.

    `first`: whether they had not been looked at before.
    """

    at: float
    idle: int = 0
    first: bool = False


class Cadence:
    """Follows one policy. Jobs that come or go make other neighbours, which are due at once.

    They stay due for one interval, as some of their figures are still from before.
    """

    def __init__(self) -> None:
        self._turns: dict[Neighbours, _Turn] = {}

    def due(
        self, jobs: Iterable[JobSignal], *, interval: Callable[[JobSignal], float], now: float
    ) -> list[JobSignal]:
        """Return the jobs to look at now; the shortest interval of neighbours counts, in seconds.

        While all neighbours are completing it doubles each time, up to eightfold; but not while
        they show how far they are, since it matters then which of them ends first. While an
        operation is in flight they stay due: what is proposed for that job is not carried out.
        """
        found: list[JobSignal] = []
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
                found += group
            elif turn.first and now < turn.at + shortest:
                found += group
            turns[key] = turn
        self._turns = turns
        return found


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to be done now, and what would be done if the policy were allowed to act."""

    act: tuple[Proposal, ...] = ()
    observe: tuple[Proposal, ...] = ()


def arbitrate(proposals: Iterable[Proposal], signals: Signals) -> Chosen:
    """Return the proposals that are chosen, in the order in which they are to be carried out.

    They come in the order of their rank; of the same rank what writes the fewest pods comes first.
    A job gets one proposal, and none while an operation on it is in flight. A policy that rests for
    a job, or may not look at it any more, can only give back what it took. A proposal that is only
    shown keeps no other from acting.
    """
    jobs = {job.uid: job for job in signals.jobs}
    chosen: dict[Mode, dict[str, Proposal]] = {Mode.ACT: {}, Mode.OBSERVE: {}}
    for proposal in sorted(proposals, key=_turn):
        job = jobs.get(proposal.job)
        if job is not None and not job.in_flight:
            mode = _mode(proposal, job)
            if mode is not Mode.OFF:
                chosen[mode].setdefault(job.uid, proposal)
    acting, observed = chosen[Mode.ACT], chosen[Mode.OBSERVE]
    return Chosen(tuple(acting.values()), tuple(observed.values()))


def _turn(proposal: Proposal) -> tuple[Rank, int, str, str]:
    return (proposal.rank, proposal.cost, proposal.policy, proposal.job)


def _mode(proposal: Proposal, job: JobSignal) -> Mode:
    """Return what may be done with a proposal; what was taken is given back in every mode."""
    if proposal.rank is Rank.RESTORE:
        return Mode.ACT
    choice = job.policies.get(proposal.policy)
    return Mode.OFF if choice is None or proposal.policy in job.rests else choice.mode


def _uid(job: JobSignal) -> str:
    return job.uid
