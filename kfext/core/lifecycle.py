"""The path of a job, as one pure function: from what the cluster says to the next step.

Every step is safe to repeat and every phase is recognised from the objects alone, so that a
controller that dies anywhere is continued by its successor (DESIGN section 3).
"""

from kfext.core.ledger import Ledger
from kfext.core.queued import queued_step
from kfext.core.refusals import Refusals
from kfext.core.running import running_step
from kfext.core.situation import Situation
from kfext.core.steps import Release, Step, Ungate, Wait
from kfext.model.verdict import Verdict
from kfext.names import FINISHED, PHASE_RELEASED, REASON_FINISHED, REASON_RELEASED, RELEASED


def next_step(situation: Situation, ledger: Ledger, refusals: Refusals | None = None) -> Step:
    """Return what to do for a job now; `refusals` are those of earlier jobs on the same ledger."""
    job = situation.job
    if job.deleting or job.finished:
        ours = situation.plan is not None or job.held or job.released
        return Wait(FINISHED if ours else None, Verdict(REASON_FINISHED, "the job has ended"))
    if not job.run_by_operator:
        return Wait(None)
    if job.released:
        return _released_step(situation)
    if job.suspend:
        return queued_step(situation, ledger, refusals or Refusals())
    return running_step(situation, ledger)


def _released_step(situation: Situation) -> Step:
    """Free the pods of a job that kfext has let go: from our gate, and from pins that do not hold.

    The release deletes what is pinned in vain; this does it for who died in between.
    """
    job, timeout = situation.job, situation.placement.bind_timeout
    gated = tuple(pod for pod in situation.pods if pod.gated and not pod.deleting)
    if gated:
        return Ungate(gated)
    own = {group.type.lower(): group.constraints.pinned_to for group in job.groups}
    stuck = tuple(
        pod
        for pod in situation.pods
        if pod.pinned_to and not (pod.node_name or pod.deleting or pod.finished)
        if pod.replica and pod.pinned_to != own.get(pod.replica.type)
    )
    why = f" ({job.annotations[RELEASED]}: {said})" if (said := situation.state.message) else ""
    message = f"kfext let go of the job{why}; it runs as on plain Kubernetes"
    if not stuck or job.suspend:
        return Wait(PHASE_RELEASED, Verdict(REASON_RELEASED, message))
    if situation.waited < timeout:
        again = timeout - situation.waited
        return Wait(PHASE_RELEASED, Verdict(REASON_RELEASED, message), again=again)
    message = f"{len(stuck)} pods were still pinned and not bound after {timeout:g} s"
    return Release(stuck, Verdict(job.annotations[RELEASED], message))
