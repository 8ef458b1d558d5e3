"""A job that kfext must not place: it runs as on plain Kubernetes, at once, with the reason.

It or its pods are beyond a bound, or have terms that kfext does not model. With `colocation:
required` it is not to run otherwise, so it waits, and the reason says so.
"""

from collections.abc import Collection

from kfext.core.lifecycle.patience import suspend
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Release, Step, Wait
from kfext.core.lifecycle.unhosted import let_go
from kfext.core.placement.unmodelled import unbound, unplaceable
from kfext.core.settings.values import Colocation
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import GATED, PHASE_RELEASED, QUEUED, REASON_HANDS_OFF


def left_suspended(situation: Situation) -> Step | None:
    """Return what to do with such a job that kfext holds, None for any other job."""
    why = _why_not_placed(situation.job)
    if why is None:
        return None
    if not situation.never_released:
        return let_go(situation, why)
    message = f"{why.message}; {situation.why_never_released}, so it stays suspended"
    return Wait(QUEUED, Verdict(why.reason, message))


def left_to_scheduler(situation: Situation, gated: Collection[Pod]) -> Step | None:
    """Return what to do with a job that runs and is not to be placed, None for any other job.

    `gated`: its pods behind the gate.
    """
    if gated:
        return _let_through(situation, gated)
    return None if situation.plan else _left_alone(situation)


def _let_through(situation: Situation, gated: Collection[Pod]) -> Step | None:
    """Ungate a gang without pins, also if it waits for a volume claim, as kube-scheduler does.

    A required job is suspended for some time, unless Kueue started it: what admission added to its
    pods may be gone from the next ones.
    """
    why = _why_not_placed(situation.job, gated) or unbound(situation.job, gated)
    if why is None:
        return None
    if not situation.never_released:
        return Release((), why)
    if situation.job.kueue_managed:
        return Wait(GATED, why)
    return suspend(situation, situation.after_strike(why.reason, why.message))


def _left_alone(situation: Situation) -> Wait:
    """Report why kfext never held a job, if it is for its terms or size; else show nothing."""
    settings, why = situation.settings, _why_not_placed(situation.job)
    if why is None or not settings.managed or settings.colocation is Colocation.OFF:
        return Wait(None)
    message = f"{why.message}; it runs as on plain Kubernetes"
    return Wait(PHASE_RELEASED, Verdict(why.reason, message))


def _why_not_placed(job: TrainingJob, gated: Collection[Pod] = ()) -> Verdict | None:
    """Return why kfext must not choose nodes for a job, None if it may."""
    sizes = (pod.constraints.excess for pod in gated if pod.constraints is not None)
    of_pod = next(filter(None, sizes), "")
    if excess := job.excess or (of_pod and f"a pod has {of_pod}"):
        return Verdict(REASON_HANDS_OFF, excess)
    return unplaceable(job, gated)
