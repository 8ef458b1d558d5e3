"""The replacement for a step that the API server refuses permanently.

A policy engine may deny the step, or the object may become too large. A preferred job is released,
if the API server accepts that; a required job frees its capacity and waits. The refused step is
tried again, but rarely.
"""

from collections.abc import Collection, Iterator

from kfext.core.lifecycle.network import release_queued
from kfext.core.lifecycle.patience import suspend
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import (
    STEP_DESCRIPTIONS,
    DeleteUnbound,
    ForgetPlan,
    OfRunningJob,
    Release,
    SaveState,
    Step,
    Ungate,
    Wait,
)
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import (
    FINISHED,
    GATED,
    PHASE_RELEASED,
    PLACED,
    PLANNED,
    QUEUED,
    REASON_WRITE_REFUSED,
    SUSPENDED,
)


def instead_of(situation: Situation, step: Step) -> Step:
    """Return the step, or a different step if the API server refuses it permanently."""
    refused = situation.refused.get(type(step).__name__)
    if refused is None:
        return step
    refusal = _refusal(type(step).__name__, refused.message)
    late = Verdict(REASON_WRITE_REFUSED, refusal)
    for other in _alternatives(situation, step, late):
        if type(other).__name__ not in situation.refused:
            return other
    never = situation.why_never_released
    lasting = f"; {never}, so it is never released" if never else ""
    message = f"{refusal}{lasting}; it is tried again from time to time"
    phase = _phase(situation.job, situation.pods)
    return Wait(phase, Verdict(late.reason, message), again=refused.again)


def while_refused(
    job: TrainingJob, members: Collection[Pod], step: str, message: str
) -> Wait | None:
    """Return a wait that reports a refused step which is tried again, or None for SaveState.

    `step`: the name of its class. Without the report the TrainingPlan would be half a minute old.
    """
    if step == SaveState.__name__:
        return None
    refusal = f"{_refusal(step, message)}; it is tried again"
    return Wait(_phase(job, members), Verdict(REASON_WRITE_REFUSED, refusal))


def _refusal(step: str, message: str) -> str:
    return f"the API server refuses {STEP_DESCRIPTIONS[step]}: {message}"


def _alternatives(situation: Situation, step: Step, late: Verdict) -> Iterator[Step]:
    """Yield the steps to try instead, best first."""
    job = situation.job
    gated = situation.behind_gate
    if job.finished or job.deleting or job.released:
        return
    if isinstance(step, OfRunningJob):
        return  # the job continues without a change
    if isinstance(step, ForgetPlan):
        return  # another client has suspended the job, and resumes it
    if isinstance(step, SaveState) and not gated:
        return  # no pod waits for the step
    if not situation.never_released:
        stuck = step.pods if isinstance(step, DeleteUnbound) else ()
        yield release_queued(situation, late) if job.suspend else Release(stuck, late)
        if gated:
            yield Ungate(gated)
    elif not (job.suspend or job.started_by or any(pod.node_name for pod in situation.pods)):
        yield suspend(situation, situation.after_strike(late.reason, late.message))


def _phase(job: TrainingJob, members: Collection[Pod]) -> str:
    if job.finished or job.deleting:
        return FINISHED
    if job.released:
        return PHASE_RELEASED
    if job.suspend:
        return QUEUED if job.held and not job.started_by else SUSPENDED
    if not members:
        return PLANNED
    return PLACED if all(pod.node_name for pod in members) else GATED
