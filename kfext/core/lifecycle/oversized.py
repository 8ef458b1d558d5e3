"""A job or pod beyond the bounds of kfext: it runs as on plain Kubernetes, at once.

With `colocation: required` it is not to run otherwise, so it waits, and the reason says so.
"""

from collections.abc import Iterable

from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Release, Step, Wait
from kfext.core.lifecycle.unhosted import let_go
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import GATED, QUEUED, REASON_HANDS_OFF


def oversized_in_queue(situation: Situation) -> Step | None:
    """Return what to do with a suspended job that is beyond the bounds, None if it is not."""
    if not situation.job.excess:
        return None
    if situation.never_released:
        return Wait(QUEUED, _required(situation.job.excess))
    return let_go(situation, Verdict(REASON_HANDS_OFF, situation.job.excess))


def oversized_behind_gate(situation: Situation, gated: Iterable[Pod]) -> Step | None:
    """Return what to do with gated pods if they or their job are beyond the bounds, else None."""
    gated = tuple(gated)
    of_pods = (pod.constraints.excess for pod in gated if pod.constraints is not None)
    beyond = next(filter(None, of_pods), "")
    excess = situation.job.excess or (f"a pod has {beyond}" if beyond else "")
    if not (gated and excess):
        return None
    if situation.never_released:
        return Wait(GATED, _required(excess))
    return Release((), Verdict(REASON_HANDS_OFF, excess))


def _required(excess: str) -> Verdict:
    return Verdict(REASON_HANDS_OFF, f"{excess}; colocation is required, so it is never released")
