"""How long a job that runs in part may be held back, and what then: every wait has an end."""

from dataclasses import replace

from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Release, SaveState, Step, Suspend, Wait
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ELIGIBLE_NODE, REASON_NO_ROOM, REASON_TOO_BIG

STRIKES = 3
"""Placements in a row that may fail before kfext gives up on placing the job."""
FORESEEN = frozenset({REASON_NO_ROOM, REASON_TOO_BIG, REASON_NO_ELIGIBLE_NODE})
"""Reasons that the planner knows of by itself: whole, the gang may have room elsewhere at once, and
else it waits for that in the queue. There is nothing to back off from."""


def patience(
    situation: Situation, wait: Wait, late: Verdict, *, limit: float, waited: float
) -> Step:
    """Wait with a gang whose rest we hold back; every `limit` is a strike, and strikes end it."""
    if situation.never_released and situation.job.kueue_managed:
        return wait  # required is never released, and what Kueue started only Kueue suspends
    left = until_strike(situation, limit=limit, waited=waited)
    if left > 0:
        return replace(wait, again=left)
    state = after_strike(situation, late, limit=limit)
    return SaveState(state) if state.strikes < STRIKES else give_up(situation, late)


def until_strike(situation: Situation, *, limit: float, waited: float) -> float:
    """Return the seconds until a strike is due; the last one does not count twice."""
    since_last = situation.state.retry_at - situation.now
    # What is further off is the end of an earlier back-off, or the clock was set back.
    return max(limit - waited, since_last if since_last <= limit else 0.0)


def after_strike(situation: Situation, late: Verdict, *, limit: float) -> JobState:
    """Return the state after a strike of a job that goes on; the next is due after `limit`."""
    state = situation.after_strike(late.reason, late.message)
    return replace(state, retry_at=situation.now + limit)


def give_up(situation: Situation, late: Verdict, *, stuck: tuple[Pod, ...] = ()) -> Step:
    """Leave a preferred job to plain Kubernetes, and suspend a required one for some time."""
    state = situation.after_strike(late.reason, late.message)
    if situation.never_released:
        if late.reason in FORESEEN:
            state = replace(state, retry_at=0.0)
        return suspend(situation, state)
    return Release(stuck, Verdict(late.reason, f"{state.strikes} attempts: {late.message}"))


def suspend(situation: Situation, state: JobState) -> Suspend:
    """Suspend the job; its plan goes, and the number of the plan stays."""
    return Suspend(replace(state, suspended_at=situation.now, generation=situation.generation))
