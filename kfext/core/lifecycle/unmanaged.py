"""A job in a namespace that is not opted in, or no longer: what bears kfext's marks is let go."""

from kfext.core.lifecycle.cards import ungated
from kfext.core.lifecycle.resume import unsafe_to_resume
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Release, Step, Wait
from kfext.model.verdict import Verdict
from kfext.names import MANAGED, REASON_NOT_MANAGED

NOTICE_SECONDS = 10.0
"""How long nothing is done. The watch of namespaces may be behind that of jobs: a namespace that
was just opted in must not have its first jobs released, nor one that is opted out for a moment."""


def unmanaged_step(situation: Situation) -> Step:
    """Return what to do for a job that kfext must not plan.

    It is released if kfext holds it, and its pods are ungated; a running job stays as it is.
    """
    job = situation.job
    gated = situation.behind_gate
    held = job.suspend and job.held and not job.kueue_managed
    if not (held or gated):
        return Wait(None)
    if situation.waited < NOTICE_SECONDS:
        return Wait(None, again=NOTICE_SECONDS - situation.waited)
    if gated and not held:
        return ungated(situation, gated)
    verdict = Verdict(REASON_NOT_MANAGED, f"its namespace is not labelled {MANAGED}=true")
    return unsafe_to_resume(situation) or Release((), verdict)
