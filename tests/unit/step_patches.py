"""The patch of the job that each step makes, for tests that play the API server."""

from collections.abc import Mapping
from typing import Any

from kfext.core.lifecycle.steps import (
    DeleteUnbound,
    ForgetPlan,
    Release,
    Replan,
    Rescale,
    Resize,
    RestartWorkers,
    SaveState,
    Step,
    Suspend,
    Unsuspend,
)
from kfext.core.patches import job as job_patch
from kfext.model.job import TrainingJob


def job_operations(
    step: Step, raw: Mapping[str, Any], job: TrainingJob
) -> list[dict[str, Any]] | None:
    """The operations on the job, None for a step that writes pods only or nothing."""
    match step:
        case Unsuspend(plan=plan, state=state):
            return job_patch.unsuspend_patch(raw, job, plan, state=state)
        case Replan(plan=plan):
            return job_patch.replan_patch(raw, job, plan)
        case Suspend(state=state, workers=workers):
            return job_patch.suspend_patch(raw, job, state, workers=workers)
        case ForgetPlan(state=state):
            return job_patch.forget_plan_patch(raw, job, state)
        case Rescale(plan=plan, workers=workers, state=state):
            return job_patch.rescale_patch(raw, job, plan, workers=workers, state=state)
        case SaveState(state=state) | DeleteUnbound(state=state) | Resize(state=state):
            return job_patch.save_state_patch(raw, job, state)
        case RestartWorkers(state=state):
            return job_patch.save_state_patch(raw, job, state)
        case Release(verdict=verdict):
            return job_patch.release_patch(raw, job, verdict)
        case _:
            return None
