"""A forecast for one job, from a planner whose steps are never carried out."""

from dataclasses import dataclass

from kfext.core.lifecycle.steps import Step, Wait
from kfext.model.moment import Moment
from kfext.state.planner import Planner


@dataclass(frozen=True, slots=True)
class Outlook:
    """The forecast for a job.

    `step`: the decision for it; a Wait if a step of the job is being written.
    `ahead`: how many jobs are before it in the queue.
    """

    step: Step
    ahead: int


def outlook(planner: Planner, uid: str, now: Moment) -> Outlook:
    """Return the forecast for a job once every changed job has been decided on.

    Steps of other jobs count as begun, so their claims hold. Raises KeyError for an unknown job.
    """
    return outlooks(planner, now)[uid]


def outlooks(planner: Planner, now: Moment) -> dict[str, Outlook]:
    """Return what becomes of every job, by uid, once all that has changed is decided on."""
    steps: dict[str, Step] = {}
    # Each change is decided on once; a decision may free capacity for jobs before it.
    for _ in range(2 * len(planner.cluster.jobs) + 2):
        tick = planner.tick(now)
        steps |= {one.job.uid: step for one, step in tick.steps}
        if not tick.remainder:
            break
    queued = (one.job.uid for one in planner.queue.queued() if not one.busy)
    ahead = {uid: number for number, uid in enumerate(queued)}
    return {
        uid: Outlook(steps.get(uid) or Wait(one.phase, one.verdict), ahead.get(uid, 0))
        for uid, one in planner.cluster.jobs.items()
    }
