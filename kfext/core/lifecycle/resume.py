"""When a suspended job may be resumed: not before the operator has forgotten its last pods."""

import math

from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Wait
from kfext.core.words import listed
from kfext.model.verdict import Verdict
from kfext.names import QUEUED, REASON_WAITING_FOR_SUSPEND

SETTLE_SECONDS = 2.0
"""Pause between the operator's last write on a suspension and a resume; a shorter one would make
the operator fail the job."""
CONFIRM_SECONDS = 30.0
"""After this long without pods the job is resumed, whatever its Suspended condition says.

The operator counts pods, and by then it knows that there are none. It writes no new condition if it
never saw the job resumed, or if its clock is behind ours; 1.8.0 writes none on a job with
ttlSecondsAfterFinished (CleanupJob in its pkg/controller.v1/common/job.go).
"""


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
        count, nodes = len(situation.pods), sorted({pod.node_name for pod in situation.pods} - {""})
        where = f" on {listed(nodes, of='nodes')}" if nodes else ""
        return _wait(f"{count} pods of the last start are still terminating{where}")
    if not state.suspended_at:
        return None  # never had pods: nothing can be counted
    seen = job.conditions.get("Suspended")
    without_pods = min(situation.waited, situation.settled)
    if without_pods >= CONFIRM_SECONDS:
        return None
    # The operator's timestamps have whole seconds.
    if seen is None or not seen.status or seen.since < math.floor(state.suspended_at):
        message = "the operator has not confirmed the suspension yet; without that, the job is"
        message = f"{message} resumed {CONFIRM_SECONDS:g} s after its last pod ended"
        return _wait(message, again=CONFIRM_SECONDS - without_pods)
    # A time ahead of ours only shows that the clocks differ.
    ago = situation.now - seen.since
    settled = min(situation.settled, ago) if ago >= 0 else situation.settled
    if settled < SETTLE_SECONDS:
        return _wait("the last pods were deleted only a moment ago", again=SETTLE_SECONDS - settled)
    return None


def _wait(message: str, *, again: float | None = None) -> Wait:
    return Wait(QUEUED, Verdict(REASON_WAITING_FOR_SUSPEND, message), again=again)
