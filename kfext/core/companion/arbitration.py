"""Which of the proposals are carried out: one order for all policies, and one operation per job.

The number of workers is decided on before (state.scaling), and a job of which that changes has no
proposal.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kfext.core.companion.proposal import Proposal, Rank
from kfext.core.companion.signals import JobSignal, Signals
from kfext.model.policy import Mode


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to be done now, and what would be done if the policy were allowed to act."""

    act: tuple[Proposal, ...] = ()
    observe: tuple[Proposal, ...] = ()


def arbitrate(proposals: Iterable[Proposal], signals: Signals) -> Chosen:
    """Return the proposals that are chosen, in the order in which they are to be carried out.

    What hurts is undone first, then jobs are resized; of the same rank what writes the fewest pods
    comes first. A job gets one proposal, and none while an operation on it is in flight. A policy
    that rests for a job, or may not look at it any more, can only give back what it took. A
    proposal that is only shown keeps no other from acting.
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
