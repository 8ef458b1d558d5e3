"""How long kfext holds back the rest of a partly bound gang, and what follows then."""

from collections.abc import Collection
from dataclasses import replace

from kfext.core.lifecycle.situation import Situation, generation_of, queued_since
from kfext.core.lifecycle.steps import Release, SaveState, Step, Suspend, Wait
from kfext.core.observed import observed
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.timestamps import left
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ELIGIBLE_NODE, REASON_NO_ROOM, REASON_TOO_BIG

STRIKES = 3
"""Placements in a row that may fail before kfext gives up on placing the job."""
FORESEEN = frozenset({REASON_NO_ROOM, REASON_TOO_BIG, REASON_NO_ELIGIBLE_NODE})
"""Reasons that the planner finds by itself, so that no back-off is needed: once suspended, the
whole gang may fit elsewhere at once, and otherwise it waits in the queue."""


def patience(
    situation: Situation, wait: Wait, late: Verdict, *, limit: float, waited: float
) -> Step:
    """Keep waiting for a partly bound gang; each `limit` is a strike, and strikes end the wait."""
    if situation.never_released and situation.job.kueue_managed:
        return wait  # required is never released, and only Kueue suspends what it started
    due = until_strike(situation, limit=limit, waited=waited)
    if due > 0:
        return replace(wait, again=due)
    state = after_strike(situation, late, limit=limit)
    return SaveState(state) if state.strikes < STRIKES else give_up(situation, late)


def until_strike(situation: Situation, *, limit: float, waited: float) -> float:
    """Return the seconds until a strike is due; the last one does not count twice."""
    # An end further away is that of an earlier back-off.
    since_last = left(situation.state.retry_at, now=situation.now, longest=limit)
    return max(limit - waited, since_last)


def after_strike(situation: Situation, late: Verdict, *, limit: float) -> JobState:
    """Return the state after a strike that is not the last; the next is due after `limit`."""
    state = situation.after_strike(late.reason, late.message)
    return replace(state, retry_at=situation.now + limit)


def give_up(situation: Situation, late: Verdict, *, stuck: tuple[Pod, ...] = ()) -> Step:
    """Release a preferred job to plain Kubernetes, or suspend a required one for some time.

    The whole gang then looks for another node than the one that did not take its `stuck` pods.
    """
    state = situation.after_strike(late.reason, late.message)
    if situation.never_released:
        nodes = (pod.pinned_to for pod in stuck if pod.pinned_to)
        state = state.excluding(nodes, now=situation.now)
        if late.reason in FORESEEN:
            state = replace(state, retry_at=0.0)
        return suspend(situation, state)
    return Release(stuck, Verdict(late.reason, f"{state.strikes} attempts: {late.message}"))


def suspend(situation: Situation, state: JobState) -> Suspend:
    """Suspend the job: its plan is removed, but the number of the plan is kept.

    So is its time in the queue, unless it ran since, and what admission makes of its pods. Their
    sizes go with them.
    """
    job = situation.job
    ran = job.has("Running") or job.has("Restarting")
    since = 0.0 if ran else queued_since(job, situation.state, now=situation.now)
    state = replace(state, queued_since=since, scale=replace(state.scale, cause=""))
    return Suspend(suspended(state, job, situation.pods, plan=situation.plan, now=situation.now))


def suspended(
    state: JobState, job: TrainingJob, pods: Collection[Pod], *, plan: Plan | None, now: float
) -> JobState:
    """Return the state of a job that is suspended under a plan; `now` is in epoch seconds."""
    return replace(
        state,
        suspended_at=now,
        observed=observed(job, pods, state, plan=plan),
        generation=generation_of(plan, state),
        cpu=state.cpu.without_pods(),
    )
