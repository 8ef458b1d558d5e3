"""What is noted of jobs that share nodes: the CPU that they lose for others, and their trials."""

from collections.abc import Collection, Mapping
from typing import assert_never

from kfext.core.companion.contest import contests
from kfext.core.companion.operation import WINDOWS_BEFORE, Outcome
from kfext.core.companion.proposal import Proposal
from kfext.core.companion.signals import Budget, JobSignal, Signals, use_of
from kfext.core.progress.followed import INTERVAL
from kfext.model.moment import Moment
from kfext.model.timestamps import past
from kfext.state.watched_job import WatchedJob

_FRESH = WINDOWS_BEFORE * INTERVAL
"""Seconds after which what a job does is known well enough to stand for the time before."""


def charge(
    here: Signals, watched: Mapping[str, WatchedJob], *, seconds: float, now: Moment
) -> None:
    """Add what each job used, and lost or lent below an equal share, in the last seconds."""
    _count_from_notes(here, watched, now.wall)
    spans = {job.uid: _span(job, watched[job.uid], seconds, now) for job in here.jobs}
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
                    seconds=spans[job.uid],
                    lends=lends,
                )


def _count_from_notes(here: Signals, watched: Mapping[str, WatchedJob], now: float) -> None:
    """Have jobs that were never charged count from when another controller noted their neighbours.

    A job that is served is not resized, so nothing is noted of it; but what it has borrowed since
    then counts, else a restart would give another turn to one that understates what it takes.
    """
    group = [watched[job.uid] for job in here.jobs]
    noted = max((past(one.counted_at, now=now) for one in group), default=0.0)
    for one in group:
        if one.budget == Budget():
            one.counted_at = one.counted_at or noted


def _span(job: JobSignal, one: WatchedJob, seconds: float, now: Moment) -> float:
    """Return for how many seconds a job is charged: also for those that nobody has counted.

    A controller that dies has counted more than it noted, and none has since then. What the job
    does now stands for that time, since its limits are still those of the note.
    """
    if not one.counted_at:
        return seconds
    if job.use is None or now.monotonic - one.began < _FRESH:
        return 0.0
    # A job whose pods are younger was suspended meanwhile, or a pod of it was made anew.
    since = max(one.counted_at, *(pod.created for pod in job.pods))
    one.counted_at = 0.0
    return max(0.0, now.wall - since)


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
        match outcome:
            case Outcome.RUNNING:
                pass
            case Outcome.FAILED:
                if (undo := one.trial.undo(here)) is not None:
                    found.append(undo)
            case Outcome.GAINED | Outcome.MOOT:
                one.trial = None
            case _:
                assert_never(outcome)
    return found
