"""The path of a job, as one pure function: from what the cluster says to the next step.

Every step is safe to repeat and every phase is recognised from the objects alone, so that a
controller that dies anywhere is continued by its successor (DESIGN section 3).
"""

from kfext.core.ledger import Ledger
from kfext.core.queued import queued_step
from kfext.core.running import running_step
from kfext.core.situation import Situation
from kfext.core.steps import Step, Ungate, Wait
from kfext.model.verdict import Verdict
from kfext.names import FINISHED, PHASE_RELEASED, REASON_FINISHED, REASON_RELEASED


def next_step(situation: Situation, ledger: Ledger) -> Step:
    """Return what to do for a job now."""
    job = situation.job
    if job.deleting or job.finished:
        return Wait(FINISHED, Verdict(REASON_FINISHED, "the job has ended"))
    if not job.run_by_operator:
        return Wait(None)
    if job.released:
        gated = tuple(pod for pod in situation.pods if pod.gated and not pod.deleting)
        verdict = Verdict(
            REASON_RELEASED, "kfext let go of the job; it runs as on plain Kubernetes"
        )
        return Ungate(gated) if gated else Wait(PHASE_RELEASED, verdict)
    return queued_step(situation, ledger) if job.suspend else running_step(situation, ledger)
