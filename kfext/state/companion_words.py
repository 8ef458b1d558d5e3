"""What a job that opted in is shown of the companion."""

from collections.abc import Iterable, Iterator, Mapping

from kfext import names
from kfext.core.companion.policy import Shown
from kfext.core.companion.proposal import Proposal
from kfext.core.companion.resize import RESIZE
from kfext.core.companion.restoring import is_resized
from kfext.core.companion.signals import JobSignal, Signals
from kfext.core.progress.followed import INTERVAL
from kfext.model.verdict import Verdict
from kfext.state.watched_job import WatchedJob


def shown_of(
    watched: WatchedJob,
    job: JobSignal,
    signals: Signals,
    would: Proposal | None,
    *,
    decided: bool,
    paused: bool,
) -> Shown | None:
    """Return what to show of a job now, None for one that has not opted in.

    `would`: what a policy that may only observe would do. `decided`: whether a policy has looked at
    the job just now; else the last words stand, and as long as what was done stands. `paused`:
    whether nothing is tried for now, after a failure.
    """
    verdict = next(_verdicts(watched, job, would, paused=paused), None)
    resized = _resized(watched, job, signals)
    if verdict is None and watched.chosen:
        if watched.early and not resized:
            message = "too little has been seen of it yet to judge later what a change has brought"
            verdict = Verdict(names.REASON_TOO_EARLY, message)
        elif watched.shown is None or (decided and not resized):
            verdict = _nothing_to_move(_stood_down(watched, job))
        else:
            verdict = watched.shown.verdict
    return None if verdict is None else Shown(resized, verdict)


def _resized(watched: WatchedJob, job: JobSignal, signals: Signals) -> bool:
    """Return whether pods have other limits than the user's, or are about to."""
    operation = watched.operation
    return is_resized(job, signals) or (operation is not None and not operation.restores)


def _verdicts(
    watched: WatchedJob, job: JobSignal, would: Proposal | None, *, paused: bool
) -> Iterator[Verdict]:
    """Yield what is to be said whatever was said before, the most important first."""
    if paused and watched.refused is not None:
        yield watched.refused
    if watched.operation is not None:
        restores = watched.operation.restores
        reason = names.REASON_CPU_RESTORED if restores else names.REASON_CPU_MOVED
        yield Verdict(reason, watched.operation.proposal.reason)
    if watched.chosen and watched.unfit:
        yield Verdict(names.REASON_STANDS_DOWN, watched.unfit)
    if would is not None:
        yield Verdict(names.REASON_WOULD_MOVE, would.reason)
    rests = watched.tracked.state.cpu.rests
    if resting := [rests[name] for name in job.policies if name in rests]:
        yield Verdict(names.REASON_RESTS, _listed(resting))
    reasons = _stood_down(watched, job)
    if job.policies and len(reasons) == len(job.policies):
        yield Verdict(names.REASON_STANDS_DOWN, _listed(reasons.values()))
    if job.policies and job.use is None:
        if watched.unread:
            yield Verdict(names.REASON_STANDS_DOWN, watched.unread)
        yield Verdict(names.REASON_TOO_EARLY, "the CPU use of its pods is not known yet")
    if job.growth is None and RESIZE.name in job.policies.keys() - reasons.keys():
        windows = f"two windows of {INTERVAL:g} s with two values each"
        message = f"its growth is not known yet: that takes {windows}"
        yield Verdict(names.REASON_TOO_EARLY, message)


def _stood_down(watched: WatchedJob, job: JobSignal) -> dict[str, str]:
    """Return by the name of a policy why it leaves the job alone for now, of those that do."""
    return {name: why for name in job.policies if (why := watched.stood_down.get(name))}


def _nothing_to_move(reasons: Mapping[str, str]) -> Verdict:
    """Return that nothing is to be done, and why some of the policies could not do anything."""
    why = [f"{name} leaves it alone: {reason}" for name, reason in reasons.items()]
    message = "; ".join(["no change is worth a write", *why])
    return Verdict(names.REASON_NOTHING_TO_MOVE, message)


def _listed(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))
