"""What becomes of a job, asked of a planner of which no step is carried out."""

from dataclasses import dataclass

from kfext.core.lifecycle.steps import Step, Wait
from kfext.model.moment import Moment
from kfext.state.planner import Planner


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was decided for a job, and how many jobs are before it in the queue.

    `step` is a Wait too if a step of the job is being written.
    """

    step: Step
    ahead: int


def outlook(planner: Planner, uid: str, now: Moment) -> Outlook:
    """Return what becomes of a job once all that has changed is decided on.

    Steps of other jobs count as begun: they hold what they take. Raises KeyError if there is no
    such job.
    """
    return outlooks(planner, now)[uid]


def outlooks(planner: Planner, now: Moment) -> dict[str, Outlook]:
    """Return what becomes of every job, by uid, once all that has changed is decided on."""
    steps: dict[str, Step] = {}
    # Every change is decided on once; a decision may free something for those before it.
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
