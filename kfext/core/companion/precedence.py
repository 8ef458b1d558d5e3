"""Which of the jobs on a node may take CPU of which other one.

Where all of them show how far they are, the one that ends first with equal shares; else one that
grows faster and ends before the job that gives.
"""

from kfext.core.companion.contest import Contest
from kfext.core.companion.signals import JobSignal
from kfext.core.progress.reported import GrowthState

_MUCH_SHORTER = 0.5
"""The part of the work of a job that one may take to which it lends CPU, if it is not sure to get
that back."""


def served(job: JobSignal, of: Contest) -> list[JobSignal]:
    """Return the jobs to which CPU of a job may go."""
    if of.ordered:
        first = of.first
        return [] if first is None or first is job else [first]
    return [other for other in of.jobs if _grows_faster(other, job) and other.ends_before(job)]


def _grows_faster(other: JobSignal, job: JobSignal) -> bool:
    return other.state is GrowthState.NEW and (other.growth or 0.0) > (job.growth or 0.0)


def outlasted(job: JobSignal, of: Contest) -> bool:
    """Return whether all jobs that grow faster than this one end after it.

    What is taken from it then only delays it: it ends before it could get anything back.
    """
    faster = [other for other in of.jobs if _grows_faster(other, job)]
    return bool(faster) and not any(other.ends_before(job) for other in faster)


def is_left_open(job: JobSignal, of: Contest, *, share: float) -> bool:
    """Return whether a job is not restricted on a node, whatever its cap would be.

    `share`: of all that it takes, how much it may lend without being sure to get it back.
    """
    first = of.first
    if not of.ordered:
        return outlasted(job, of)
    if first is None or of.is_filled_by(job):
        return False
    # Whether it gets all of it back is not known, so it lends a little, and where that helps much.
    little = job.budget.may_lend(share, left=job.left or 0.0)
    return not (little and first.fair_left <= _MUCH_SHORTER * job.fair_left)
