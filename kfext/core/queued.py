"""A job that kfext holds suspended: it waits until it is safe to resume and there is room."""

import math

from kfext.core.explain import listed
from kfext.core.gang import members_of
from kfext.core.ledger import Ledger
from kfext.core.plan import place
from kfext.core.situation import Situation
from kfext.core.steps import Release, Start, Step, Wait
from kfext.model.verdict import Verdict
from kfext.names import (
    QUEUED,
    REASON_BACKING_OFF,
    REASON_NO_ELIGIBLE_NODE,
    REASON_PLANNED,
    REASON_RELEASED,
    REASON_SUSPENDED_BY_USER,
    REASON_TOO_BIG,
    REASON_WAITING_FOR_SUSPEND,
    SUSPENDED,
)

SETTLE_SECONDS = 2.0
"""Between the operator's last word on a suspend and a resume; earlier it would fail the job."""
RELEASE_SECONDS = 60.0
"""releaseAfter `auto`, for a job that does not fit even the empty cluster."""


def queued_step(situation: Situation, ledger: Ledger) -> Step:
    """Return what to do for a suspended job."""
    job, state, now = situation.job, situation.state, situation.now
    if not job.held or job.kueue_managed:
        who = "Kueue" if job.kueue_managed else "a person or another system"
        return Wait(SUSPENDED, Verdict(REASON_SUSPENDED_BY_USER, f"suspended by {who}"))
    if situation.colocation == "off":
        return Release((), Verdict(REASON_RELEASED, "colocation was switched off"))
    unsafe = _unsafe_to_resume(situation)
    if unsafe is not None:
        return unsafe
    if state.retry_at > now:
        reason, message = state.reason or REASON_BACKING_OFF, state.message
        return Wait(QUEUED, Verdict(reason, message), again=state.retry_at - now)
    found = place(members_of(job), ledger, one_node=situation.one_node, excluded=situation.excluded)
    if isinstance(found, Verdict):
        return _keep_waiting(situation, found)
    plan = situation.planned(found)
    return Start(plan, Verdict(REASON_PLANNED, f"{job.pods} pods go to {listed(plan.nodes)}"))


def _unsafe_to_resume(situation: Situation) -> Wait | None:
    """Return a wait while the operator would count terminating pods of the last start as failed."""
    job, state = situation.job, situation.state
    if situation.pods:
        message = f"{len(situation.pods)} pods of the last start still end"
        return Wait(QUEUED, Verdict(REASON_WAITING_FOR_SUSPEND, message))
    if not state.suspended_at:
        return None  # never had pods: nothing can be counted
    seen = job.conditions.get("Suspended")
    # The operator's times have whole seconds.
    if seen is None or not seen.status or seen.since < math.floor(state.suspended_at):
        message = "the operator has not confirmed the suspension yet"
        return Wait(QUEUED, Verdict(REASON_WAITING_FOR_SUSPEND, message))
    settled = min(situation.settled, situation.now - seen.since)
    if settled < SETTLE_SECONDS:
        message = "the last pods have only just gone"
        verdict = Verdict(REASON_WAITING_FOR_SUSPEND, message)
        return Wait(QUEUED, verdict, again=SETTLE_SECONDS - settled)
    return None


def _keep_waiting(situation: Situation, verdict: Verdict) -> Step:
    """Return a wait, or the release of a job for which waiting has no prospect."""
    hopeless = verdict.reason in {REASON_TOO_BIG, REASON_NO_ELIGIBLE_NODE}
    bound = situation.placement.release_after
    if bound is None and hopeless:
        bound = RELEASE_SECONDS
    if situation.one_node:
        message = f"{verdict.message}; colocation is required, so it is never released"
        return Wait(QUEUED, Verdict(verdict.reason, message))
    if bound is None:
        return Wait(QUEUED, verdict)
    since = max(situation.job.created, situation.state.suspended_at)
    left = bound - (situation.now - since)
    if left > 0:
        message = f"{verdict.message}; released to plain Kubernetes {bound:g} s after it was queued"
        return Wait(QUEUED, Verdict(verdict.reason, message), again=left)
    message = f"no place within {bound:g} s: {verdict.message}"
    return Release((), Verdict(verdict.reason, message))
