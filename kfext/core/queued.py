"""A job that kfext holds suspended: it waits until it is safe to resume and there is room."""

import math

from kfext.core.explain import listed
from kfext.core.gang import members_of
from kfext.core.ledger import Ledger
from kfext.core.plan import place
from kfext.core.situation import Situation
from kfext.core.steps import Release, Start, Step, Wait
from kfext.model.plan import Assignment
from kfext.model.state import JobState
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
CONFIRM_SECONDS = 30.0
"""Without pods for so long, a job that the operator calls suspended is, since whenever."""
RELEASE_SECONDS = 60.0
"""releaseAfter `auto`, for a job that does not fit even the empty cluster."""
HOPELESS = frozenset({REASON_TOO_BIG, REASON_NO_ELIGIBLE_NODE})
"""Reasons to wait that no end of another job removes."""
LARGEST_GANG = 10_000
"""Pods of the largest gang that is planned: its plan must fit into an annotation."""


def queued_step(situation: Situation, ledger: Ledger) -> Step:
    """Return what to do for a suspended job."""
    job, state, now = situation.job, situation.state, situation.now
    if not job.held or job.kueue_managed:
        who = "Kueue" if job.kueue_managed else "a person or another system"
        phase = SUSPENDED if situation.managed or situation.plan else None
        return Wait(phase, Verdict(REASON_SUSPENDED_BY_USER, f"suspended by {who}"))
    unsafe = _unsafe_to_resume(situation)
    if unsafe is not None:
        return _with_cause(unsafe, state)
    if situation.colocation == "off":
        return Release((), Verdict(REASON_RELEASED, "colocation was switched off"))
    if state.retry_at > now:
        reason, message = state.reason or REASON_BACKING_OFF, state.message
        return Wait(QUEUED, Verdict(reason, message), again=state.retry_at - now)
    found = _place(situation, ledger)
    if isinstance(found, Verdict):
        return _keep_waiting(situation, found)
    plan = situation.planned(found)
    return Start(plan, Verdict(REASON_PLANNED, f"{job.pods} pods go to {listed(plan.nodes)}"))


def _with_cause(wait: Wait, state: JobState) -> Wait:
    """Put why the job was stopped before why it cannot resume yet: people look for the cause."""
    if not state.message or wait.verdict is None:
        return wait
    message = f"{state.message}; {wait.verdict.message}"
    return Wait(wait.phase, Verdict(wait.verdict.reason, message), again=wait.again)


def _place(situation: Situation, ledger: Ledger) -> Assignment | Verdict:
    job = situation.job
    if job.pods > LARGEST_GANG:
        message = f"{job.pods} pods are more than the {LARGEST_GANG} that kfext places together"
        return Verdict(REASON_TOO_BIG, message)
    return place(
        members_of(job),
        ledger,
        one_node=situation.one_node,
        excluded=situation.excluded,
        assumed=situation.placement.assumed_requests,
    )


def _unsafe_to_resume(situation: Situation) -> Wait | None:
    """Return a wait while the operator would count terminating pods of the last start as failed."""
    job, state = situation.job, situation.state
    if situation.pods:
        message = f"{len(situation.pods)} pods of the last start still end"
        return Wait(QUEUED, Verdict(REASON_WAITING_FOR_SUSPEND, message))
    if not state.suspended_at:
        return None  # never had pods: nothing can be counted
    seen = job.conditions.get("Suspended")
    # The operator's times have whole seconds. It writes none if it never saw the job resumed, and
    # its clock may be behind ours; so what it says counts in any case after a while.
    confirmed = seen is not None and seen.since >= math.floor(state.suspended_at)
    if seen is None or not seen.status or not (confirmed or situation.waited >= CONFIRM_SECONDS):
        verdict = Verdict(
            REASON_WAITING_FOR_SUSPEND, "the operator has not confirmed the suspension yet"
        )
        return Wait(QUEUED, verdict, again=max(CONFIRM_SECONDS - situation.waited, 1.0))
    # A time ahead of ours tells nothing but that the clocks differ.
    ago = situation.now - seen.since
    settled = min(situation.settled, ago) if ago >= 0 else situation.settled
    if settled < SETTLE_SECONDS:
        message = "the last pods have only just gone"
        verdict = Verdict(REASON_WAITING_FOR_SUSPEND, message)
        return Wait(QUEUED, verdict, again=SETTLE_SECONDS - settled)
    return None


def _keep_waiting(situation: Situation, verdict: Verdict) -> Step:
    """Return a wait, or the release of a job for which waiting has no prospect."""
    bound = situation.placement.release_after
    waited = situation.now - max(situation.job.created, situation.state.suspended_at)
    if bound is None and verdict.reason in HOPELESS:
        # From when it became so: a node that is away for a moment must not cost a job its place.
        bound, waited = RELEASE_SECONDS, situation.hopeless
    if situation.one_node:
        message = f"{verdict.message}; colocation is required, so it is never released"
        return Wait(QUEUED, Verdict(verdict.reason, message))
    if bound is None:
        return Wait(QUEUED, verdict)
    if waited < bound:
        message = f"{verdict.message}; released to plain Kubernetes after {bound:g} s of this"
        return Wait(QUEUED, Verdict(verdict.reason, message), again=bound - waited)
    message = f"no place within {bound:g} s: {verdict.message}"
    return Release((), Verdict(verdict.reason, message))
