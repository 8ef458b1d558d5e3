"""The path of a job as one pure function, from the state of the cluster to the next step.

Every step is safe to repeat, and the objects alone show the phase. So a new controller continues
where the last controller died.
"""

from collections.abc import Iterable
from dataclasses import replace

from kfext.core.elastic import workers_of, workers_on_release
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.cards import ungate_unplaced, use_to_store
from kfext.core.lifecycle.new_nodes import limit_wait
from kfext.core.lifecycle.patience import by_suspension
from kfext.core.lifecycle.queued import queued_step, unsafe_to_resume
from kfext.core.lifecycle.refused import instead_of
from kfext.core.lifecycle.running import running_step
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import DeleteUnbound, Release, SaveState, Step, Ungate, Wait
from kfext.core.queue.no_fit import NoFitCache
from kfext.core.settings.resolve import to_record
from kfext.core.words import pods
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import (
    FINISHED,
    MANAGED,
    PHASE_RELEASED,
    REASON_FINISHED,
    REASON_NOT_MANAGED,
    REASON_RELEASED,
    RELEASED,
)

_LONGEST_REASON = 64  # characters
NOTICE_SECONDS = 10.0
"""The time before a job of an unmanaged namespace is released: the watch of namespaces may lag
behind the watch of jobs, and a namespace may lose its label for a moment."""


def next_step(situation: Situation, ledger: Ledger, no_fits: NoFitCache | None = None) -> Step:
    """Return the next step of a job. `no_fits`: the refusals of earlier jobs on this ledger."""
    step = _next_step(situation, ledger, no_fits or NoFitCache())
    if situation.refused:
        step = instead_of(situation, step)
    may_save = SaveState.__name__ not in situation.refused
    if isinstance(step, Wait) and situation.has_open_ask and step.phase and may_save:
        step = limit_wait(situation, step)
    if isinstance(step, Wait) and step.phase not in {None, FINISHED}:
        before = situation.state
        settings = to_record(situation.job, situation.settings, before=before.settings)
        busy = use_to_store(situation) if situation.shares_gpus else before.busy
        state = replace(before, settings=settings, busy=busy)
        if state != before and may_save:
            return SaveState(state)
    return step


def _next_step(situation: Situation, ledger: Ledger, no_fits: NoFitCache) -> Step:
    job = situation.job
    if job.deleting or job.finished:
        return _finished_step(situation)
    if not job.run_by_operator:
        return Wait(None)
    if job.released:
        return _released_step(situation)
    if job.held and not job.suspend:
        return SaveState(situation.state)  # without the mark, the next suspend is a person's
    if not situation.settings.managed and (job.held or not job.suspend):
        return _unmanaged_step(situation)
    return (
        queued_step(situation, ledger, no_fits) if job.suspend else running_step(situation, ledger)
    )


def _finished_step(situation: Situation) -> Step:
    """Delete the pods of an ended job that are gated, or pinned and never bound.

    With some values of cleanPodPolicy the operator would never delete them.
    """
    job, timeout = situation.job, situation.placement.bind_timeout
    gated = situation.behind_gate
    handled = situation.plan is not None or job.held or job.released or bool(gated)
    phase, verdict = FINISHED if handled else None, Verdict(REASON_FINISHED, "the job has ended")
    stuck = (*gated, *_stuck(job, situation.pods))
    if not (handled and stuck) or job.deleting:
        return Wait(phase, verdict)
    if situation.clocks.waited < timeout:
        return Wait(phase, verdict, again=timeout - situation.clocks.waited)
    message = f"the job ended before {pods(len(stuck))} were bound"
    return DeleteUnbound(stuck, replace(situation.state, reason=REASON_FINISHED, message=message))


def _stuck(job: TrainingJob, members: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods that kfext has pinned and kube-scheduler has not bound."""
    by_user = {group.type.lower(): group.constraints.pinned_to for group in job.groups}
    return tuple(
        pod
        for pod in members
        if pod.pinned_to and not (pod.node_name or pod.deleting or pod.finished)
        if pod.replica and pod.pinned_to != by_user.get(pod.replica.type)
    )


def _released_step(situation: Situation) -> Step:
    """Ungate the pods of a released job, and delete pods that are pinned and never bound.

    The release step deletes them too; this step repeats it if the controller died in between.
    """
    job, timeout = situation.job, situation.placement.bind_timeout
    gated = situation.behind_gate
    if gated:
        return _ungate(situation.state, gated)
    if job.suspend and job.held and not job.kind.recreates:
        return unsafe_to_resume(situation) or Release((), Verdict(_reason(job), "it was stuck"))
    stuck = _stuck(job, situation.pods)
    why = _why_released(job, situation.state)
    message = f"kfext released the job ({why}); it runs as on plain Kubernetes"
    if not stuck or job.suspend:
        return Wait(PHASE_RELEASED, Verdict(REASON_RELEASED, message))
    waited = situation.clocks.longest_wait(stuck)
    if waited < timeout:
        again = timeout - waited
        return Wait(PHASE_RELEASED, Verdict(REASON_RELEASED, message), again=again)
    message = f"{len(stuck)} pods were pinned and still not bound after {timeout:g} s"
    step = Release(stuck, Verdict(_reason(job), message))
    return step if job.kind.recreates else by_suspension(situation, step)


def _ungate(state: JobState, gated: tuple[Pod, ...]) -> Step:
    return ungate_unplaced(state, gated) if any(pod.has_slot for pod in gated) else Ungate(gated)


def _why_released(job: TrainingJob, state: JobState) -> str:
    """Return the reason on the job, with the message of the state if it has the same reason.

    A user who releases a job cannot write the state, so its message may be older.
    """
    reason = _reason(job)
    return f"{reason}: {state.message}" if state.message and state.reason == reason else reason


def _reason(job: TrainingJob) -> str:
    """Return the reason in the mark `released`, cut because users may write it."""
    return job.annotations[RELEASED][:_LONGEST_REASON]


def _unmanaged_step(situation: Situation) -> Step:
    """Return the step of a job in a namespace that is not managed.

    The job is released if kfext holds it or has removed workers from it that can be restored.
    Otherwise its pods are ungated, and a running job does not change.
    """
    job, gated = situation.job, situation.behind_gate
    held = job.suspend and job.held and not job.started_by
    short = not job.started_by and workers_on_release(job, situation.state) != workers_of(job)
    if not (held or gated or short):
        return Wait(None)
    if situation.clocks.waited < NOTICE_SECONDS:
        return Wait(None, again=NOTICE_SECONDS - situation.clocks.waited)
    if gated and not (held or short):
        return _ungate(situation.state, gated)
    verdict = Verdict(REASON_NOT_MANAGED, f"its namespace is not labelled {MANAGED}=true")
    return (unsafe_to_resume(situation) if held else None) or Release((), verdict)
