"""A gang that is whole and cannot pass the barrier: it gives its capacity back after a while."""

from collections.abc import Collection
from dataclasses import replace

from kfext.core.lifecycle.patience import STRIKES, give_up, patience, suspend
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Step, Wait
from kfext.core.observed import differences, observed
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import (
    GATED,
    REASON_FOREIGN_GATE,
    REASON_NO_ELIGIBLE_NODE,
    REASON_NO_ROOM,
)


def without_room(
    situation: Situation, found: Verdict, *, gated: Collection[Pod], some_run: bool
) -> Step:
    """Return what to do with a gated gang whose capacity is gone.

    It is suspended at once, unless members run or Kueue started it: then kfext waits for a while.
    """
    if some_run or situation.job.kueue_managed:
        limit = situation.placement.bind_timeout
        late = Verdict(found.reason, f"no capacity for the rest of the gang: {found.message}")
        wait = Wait(GATED, found)
        waited = situation.longest_wait(gated)
        return patience(situation, wait, late, limit=limit, waited=waited)
    eligible = found.reason != REASON_NO_ELIGIBLE_NODE
    if other := differences(situation.job, gated, plan=situation.plan, eligible=eligible):
        # The planner could not know; from now on it plans with what it has seen, so that the first
        # time no back-off is needed.
        late = Verdict(found.reason, f"admission changed its pods: {other}; {found.message}")
        return _stopped(situation, late, backs_off=situation.state.strikes > 0)
    state = situation.state
    if found.reason == REASON_NO_ROOM:
        message = f"the capacity was taken before all pods existed: {found.message}"
    else:
        # The plan expected tolerations, or a node has gone.
        message = f"admission added no toleration to its pods: {found.message}"
        pods, plan = situation.pods, situation.plan
        seen = observed(situation.job, pods, state, plan=plan, unchanged=True)
        state = replace(state, observed=seen)
    state = replace(state, retry_at=0.0, reason=found.reason, message=message)
    return suspend(situation, state)


def behind_another_gate(situation: Situation, *, gates: int, some_run: bool) -> Step:
    """Return what to do with a gang of which another system's gate holds `gates` pods.

    Kueue's gates are part of its admission, and only Kueue suspends what it started.
    """
    message = f"{gates} pods are also held by another system's scheduling gate"
    wait = Wait(GATED, Verdict(REASON_FOREIGN_GATE, message))
    if situation.job.kueue_managed:
        return wait
    limit = situation.placement.bind_timeout
    late = Verdict(REASON_FOREIGN_GATE, f"{message} after {limit:g} s")
    if some_run:
        return patience(situation, wait, late, limit=limit, waited=situation.waited)
    left = limit - situation.waited
    return replace(wait, again=left) if left > 0 else _stopped(situation, late, backs_off=True)


def _stopped(situation: Situation, late: Verdict, *, backs_off: bool) -> Step:
    """Return the stop of a gang of which no member runs; the third in a row ends the attempts."""
    state = situation.after_strike(late.reason, late.message)
    if state.strikes >= STRIKES and not situation.never_released:
        return give_up(situation, late)
    return suspend(situation, state if backs_off else replace(state, retry_at=0.0))
