"""When a suspended job may be resumed: not before the operator has forgotten its last pods."""

import math

from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Wait
from kfext.model.verdict import Verdict
from kfext.names import QUEUED, REASON_WAITING_FOR_SUSPEND

SETTLE_SECONDS = 2.0
"""Pause between the operator's last write on a suspension and a resume; a shorter one would make
the operator fail the job."""
CONFIRM_SECONDS = 30.0
"""After this long without pods, trust the Suspended condition whatever its timestamp."""


def unsafe_to_resume(situation: Situation) -> Wait | None:
    """Return a wait while the operator would count terminating pods of the last start as failed."""
    found = _unsafe(situation)
    message = situation.state.message
    if found is None or found.verdict is None or not message:
        return found
    # Why the job was stopped comes first, because people look for the cause.
    verdict = Verdict(found.verdict.reason, f"{message}; {found.verdict.message}")
    return Wait(found.phase, verdict, again=found.again)


def _unsafe(situation: Situation) -> Wait | None:
    job, state = situation.job, situation.state
    if situation.pods:
        return _wait(f"{len(situation.pods)} pods of the last start are still terminating")
    if not state.suspended_at:
        return None  # never had pods: nothing can be counted
    seen = job.conditions.get("Suspended")
    # The operator's timestamps have whole seconds. It writes none if it never saw the job resumed,
    # and its clock may be behind ours; so after a while its condition counts in any case.
    confirmed = seen is not None and seen.since >= math.floor(state.suspended_at)
    if seen is None or not seen.status or not (confirmed or situation.waited >= CONFIRM_SECONDS):
        again = max(CONFIRM_SECONDS - situation.waited, 1.0)
        return _wait("the operator has not confirmed the suspension yet", again=again)
    # A time ahead of ours only shows that the clocks differ.
    ago = situation.now - seen.since
    settled = min(situation.settled, ago) if ago >= 0 else situation.settled
    if settled < SETTLE_SECONDS:
        return _wait("the last pods were deleted only a moment ago", again=SETTLE_SECONDS - settled)
    return None


def _wait(message: str, *, again: float | None = None) -> Wait:
    return Wait(QUEUED, Verdict(REASON_WAITING_FOR_SUSPEND, message), again=again)
