"""What is noted of jobs that share nodes: the CPU that they lose for others, and their trials."""

from collections.abc import Collection, Mapping

from kfext.core.companion.contest import contests
from kfext.core.companion.proposal import Proposal
from kfext.core.companion.signals import Signals, use_of
from kfext.core.companion.trial import Outcome
from kfext.state.watched_job import WatchedJob


def charge(here: Signals, watched: Mapping[str, WatchedJob], *, seconds: float) -> None:
    """Add what each job used, and lost or lent below an equal share, in the last seconds."""
    for node, of in contests(here.jobs, here).items():
        capped = len(of.jobs) > 1 and any(cap is not None for cap in of.present.values())
        # Whom it serves is not known again until long after a restart, but that it is lent is.
        lends, equal = capped and of.ordered, of.equal()
        for job in of.jobs:
            use = use_of(job.on(node))
            if use is not None:
                one = watched[job.uid]
                one.peak = max(one.peak, use)
                one.budget = one.budget.after(
                    use=use,
                    equal=equal[job.uid] if lends else of.size // len(of.jobs),
                    cap=of.present[job.uid],
                    seconds=seconds,
                    lends=lends,
                )


def judged(
    here: Signals, watched: Mapping[str, WatchedJob], *, ended: Collection[str]
) -> list[Proposal]:
    """Return what is to be undone; `ended`: the jobs of which a window has just ended.

    A trial that has shown no gain stays until its undoing begins.
    """
    found = []
    for job in here.jobs:
        one = watched[job.uid]
        if one.trial is None:
            continue
        if one.trial.proposal.serves in ended and not job.in_flight:
            one.trial = one.trial.with_window(here)
        outcome = one.trial.outcome(here)
        if outcome is Outcome.FAILED and (undo := one.trial.undo(here)) is not None:
            found.append(undo)
        elif outcome in {Outcome.GAINED, Outcome.MOOT}:
            one.trial = None
    return found
