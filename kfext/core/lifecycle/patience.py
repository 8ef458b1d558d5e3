"""The wait for a gang that cannot start, and the step after the wait."""

import math
import re
from collections.abc import Collection
from dataclasses import replace

from kfext.core.lifecycle.new_nodes import members_ask
from kfext.core.lifecycle.situation import Situation, generation_of
from kfext.core.lifecycle.steps import DeleteUnbound, Release, SaveState, Step, Suspend, Wait
from kfext.core.observed import differences, observed
from kfext.core.words import pods
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.timestamps import seconds_until
from kfext.model.verdict import Verdict
from kfext.names import (
    BINDING,
    GATED,
    REASON_FOREIGN_GATE,
    REASON_NO_ELIGIBLE_NODE,
    REASON_NO_ROOM,
    REASON_TOO_BIG,
    REASON_WRITE_REFUSED,
)

STRIKES = 3
"""The number of failed placements in a row after which kfext stops placing the job."""
FORESEEN = frozenset({REASON_NO_ROOM, REASON_TOO_BIG, REASON_NO_ELIGIBLE_NODE})
"""Refusals by the planner itself. They need no back-off: the suspended gang may fit elsewhere at
once, or it waits in the queue."""
REPORTS = "; the operator reports: "
"""Precedes the operator's report in a message about pods that it did not create."""
_DENIED = re.compile("denied (the )?request")
"""The answer of an API server if a webhook or a ValidatingAdmissionPolicy denies a pod."""


def patience(
    situation: Situation, wait: Wait, late: Verdict, *, limit: float, waited: float
) -> Step:
    """Wait for a partly bound gang; each `limit` seconds are a strike (`late`), up to STRIKES."""
    if situation.never_released and situation.job.started_by:
        return wait  # kfext never releases it, and only Kueue suspends a job that it started
    remaining = until_strike(situation, limit=limit, waited=waited)
    if remaining > 0:
        return replace(wait, again=remaining)
    state = after_strike(situation, late, limit=limit)
    return SaveState(state) if state.strikes < STRIKES else give_up(situation, late)


def until_strike(situation: Situation, *, limit: float, waited: float) -> float:
    """Return the seconds until the next strike is due."""
    # `retry_at` is also the end of a back-off, which may be later.
    until_retry = seconds_until(situation.state.retry_at, now=situation.now, longest=limit)
    return max(limit - waited, until_retry)


def after_strike(situation: Situation, late: Verdict, *, limit: float) -> JobState:
    """Return the state after a strike; the next strike is due after `limit`."""
    state = situation.after_strike(late.reason, late.message)
    return replace(state, retry_at=situation.now + limit)


def give_up(situation: Situation, late: Verdict, *, stuck: tuple[Pod, ...] = ()) -> Step:
    """Release a preferred job to plain Kubernetes, or suspend a required job with a back-off.

    The required job may not use the nodes of its `stuck` pods for a while.
    """
    state = situation.after_strike(late.reason, late.message)
    if situation.never_released:
        nodes = (pod.pinned_to for pod in stuck if pod.pinned_to)
        state = state.with_excluded(nodes, now=situation.now)
        if late.reason in FORESEEN:
            state = replace(state, retry_at=0.0)
        return suspend(situation, state)
    return Release(stuck, Verdict(late.reason, f"{state.strikes} attempts: {late.message}"))


def by_suspension(situation: Situation, step: Step) -> Step:
    """Return the step of a running job, with a suspension instead of a release of a partial gang.

    If the operator counts deleted pods as failed, a suspension also replaces their deletion. The
    suspended job is placed anew or released from the queue.
    """
    if isinstance(step, DeleteUnbound):
        if situation.job.kind.recreates:
            return step
        state = step.state
    elif isinstance(step, Release) and step.pods:
        why = step.verdict
        state = replace(situation.state, reason=why.reason, message=why.message)
        state = replace(state, strikes=max(state.strikes, STRIKES))
    else:
        return step
    if situation.job.started_by:
        return Wait(BINDING, Verdict(state.reason, state.message))
    return suspend(situation, replace(state, retry_at=0.0))


def suspend(situation: Situation, state: JobState) -> Suspend:
    """Suspend the job, and remove its plan and the recorded sizes of its pods.

    The state keeps the number of the plan, the changes that admission made to its pods, and its
    time in the queue unless it has run since. A job that did not start from the queue enters it
    now, because its user may have suspended it a day ago.
    """
    job = situation.job
    if not situation.forming and (job.has("Running") or job.has("Restarting")):
        state = replace(state, queued_since=0.0)
    state = replace(state, scale=replace(state.scale, cause=""))
    return Suspend(suspended(state, job, situation.pods, plan=situation.plan, now=situation.now))


def suspended(
    state: JobState, job: TrainingJob, pods: Collection[Pod], *, plan: Plan | None, now: float
) -> JobState:
    """Return the state of a job that is suspended at `now`, in epoch seconds, under a plan."""
    return replace(
        state,
        suspended_at=now,
        observed=observed(job, pods, state, plan=plan),
        generation=generation_of(plan, state),
        cpu=state.cpu.without_pods(),
    )


def gated_without_capacity(
    situation: Situation, why: Verdict, *, gated: Collection[Pod], some_run: bool
) -> Step:
    """Return the step of a gated gang that lost its capacity.

    The gang is suspended at once, unless it trains or Kueue started it: then kfext waits first.
    """
    if some_run and situation.forming:
        return suspend_in_part(situation, why)
    if some_run and (situation.context.autoscaler or situation.has_open_ask):
        waited = situation.clocks.longest_wait(gated)
        if ask := members_ask(situation, why, gated=len(gated), waited=waited):
            return ask
    if some_run or situation.job.started_by:
        limit = situation.placement.bind_timeout
        late = Verdict(why.reason, f"no capacity for the rest of the gang: {why.message}")
        wait = Wait(GATED, why)
        waited = situation.clocks.longest_wait(gated)
        return patience(situation, wait, late, limit=limit, waited=waited)
    eligible = why.reason != REASON_NO_ELIGIBLE_NODE
    if changes := differences(situation.job, gated, plan=situation.plan, eligible=eligible):
        # The next plan includes these changes, so the first stop needs no back-off.
        late = Verdict(why.reason, f"admission changed its pods: {changes}; {why.message}")
        return _stopped(situation, late, backs_off=situation.state.strikes > 0)
    state = situation.state
    if why.reason == REASON_NO_ROOM:
        message = f"the capacity was taken before all pods existed: {why.message}"
    else:
        # The plan expected tolerations, or a node was removed.
        message = f"admission added no toleration to its pods: {why.message}"
        pods, plan = situation.pods, situation.plan
        seen = observed(situation.job, pods, state, plan=plan, unchanged=True)
        state = replace(state, observed=seen)
    state = replace(state, retry_at=0.0, reason=why.reason, message=message)
    return suspend(situation, state)


def suspend_in_part(situation: Situation, why: Verdict) -> Suspend:
    """Suspend a gang that is bound in part and was never whole, so that no member occupies a node.

    `why`: why the other members have no node.
    """
    bound = sum(bool(pod.node_name) for pod in situation.pods if not pod.deleting)
    message = f"{bound} of {pods(situation.job.pods)} were bound, and the others have no node"
    state = situation.after_strike(REASON_NO_ROOM, f"{message}: {why.message}")
    return suspend(situation, state)


def behind_another_gate(situation: Situation, *, gates: int, some_run: bool) -> Step:
    """Return the step of a gang with `gates` pods behind another system's gate.

    Kueue's gates are part of its admission, and only Kueue suspends the jobs that it started.
    """
    message = f"{gates} pods are also held by another system's scheduling gate"
    wait = Wait(GATED, Verdict(REASON_FOREIGN_GATE, message))
    if situation.job.started_by:
        return wait
    limit = situation.placement.bind_timeout
    late = Verdict(REASON_FOREIGN_GATE, f"{message} after {limit:g} s")
    if some_run:
        return patience(situation, wait, late, limit=limit, waited=situation.clocks.waited)
    remaining = limit - situation.clocks.waited
    return (
        replace(wait, again=remaining)
        if remaining > 0
        else _stopped(situation, late, backs_off=True)
    )


def _stopped(situation: Situation, late: Verdict, *, backs_off: bool) -> Step:
    """Stop a gang without running members; the third stop in a row ends the attempts."""
    state = situation.after_strike(late.reason, late.message)
    if state.strikes >= STRIKES and not situation.never_released:
        return give_up(situation, late)
    return suspend(situation, state if backs_off else replace(state, retry_at=0.0))


def not_created(situation: Situation, late: Verdict, *, some: bool) -> Step:
    """Suspend a gang without all pods; release a preferred gang the third time if that may help.

    It may help if a policy denies all pods because of the gate, or if an operator creates pods in
    stages. Other reported causes affect plain pods too. Without a report, the operator may be down.
    """
    before, state = situation.state, situation.after_strike(late.reason, late.message)
    report = before.message.partition(REPORTS)[2]
    resumed = situation.job.conditions.get("Suspended")
    denied = _DENIED.search(report) if report else resumed and not resumed.status
    if state.strikes >= STRIKES and before.reason == late.reason and not situation.never_released:
        if some and situation.job.kind.rendered and not report:
            return give_up(situation, late)
        if denied and not some:
            state = replace(
                state, reason=REASON_WRITE_REFUSED, message=before.message, retry_at=0.0
            )
    return suspend(situation, state)


def claims_last(situation: Situation) -> float:
    """Return the seconds until the plan stops claiming capacity for pods that kfext cannot stop.

    kfext ends other waits by suspending the job or deleting a pinned pod. It does neither to a job
    that Kueue suspends nor to pods that its webhook missed, so the plan must stop claiming capacity
    for them. The result is infinite if there are no such pods.
    """
    job, placement = situation.job, situation.placement
    live = [pod for pod in situation.pods if not pod.deleting]
    if situation.plan is None or job.suspend or job.finished:
        return math.inf
    if job.started_by and not (len(live) >= job.pods and all(pod.home for pod in live)):
        waited = max(situation.clocks.quiet, situation.clocks.longest_wait(live))
        return max(placement.create_timeout, placement.bind_timeout) - waited
    loose = [pod for pod in live if pod.loose]
    return placement.bind_timeout - situation.clocks.longest_wait(loose) if loose else math.inf
