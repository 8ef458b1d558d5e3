"""A job in a namespace that is not opted in, or no longer: what bears kfext's marks is let go."""

from kfext.core.elastic import workers_let_go, workers_of
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

    It is released if kfext holds it, or has taken workers that it can get back; else its pods are
    ungated, and a running job stays as it is.
    """
    job, gated = situation.job, situation.behind_gate
    held = job.suspend and job.held and not job.kueue_managed
    short = not job.kueue_managed and workers_let_go(job, situation.state) != workers_of(job)
    if not (held or gated or short):
        return Wait(None)
    if situation.waited < NOTICE_SECONDS:
        return Wait(None, again=NOTICE_SECONDS - situation.waited)
    if gated and not (held or short):
        return ungated(situation, gated)
    verdict = Verdict(REASON_NOT_MANAGED, f"its namespace is not labelled {MANAGED}=true")
    return (unsafe_to_resume(situation) if held else None) or Release((), verdict)
