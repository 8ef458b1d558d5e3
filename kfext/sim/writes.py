"""The writes of each step to the API server: the patch of the job, then the writes of its pods."""

from collections.abc import Mapping
from typing import Any, TypeAlias, assert_never

from kfext.core.lifecycle.steps import (
    DeleteUnbound,
    ForgetPlan,
    Pin,
    Release,
    Replan,
    RequestCheckpoint,
    Rescale,
    Resize,
    RestartWorkers,
    SaveState,
    Step,
    Suspend,
    Ungate,
    Unsuspend,
    Wait,
)
from kfext.core.patches import job as job_patch
from kfext.core.patches import pod as pod_patch
from kfext.core.patches.json_patch import Operation
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod

Change: TypeAlias = list[Operation] | pod_patch.Body | None
"""A JSON patch, a strategic merge patch of the subresource `resize`, or a deletion if unset."""


def job_operations(step: Step, raw: Mapping[str, Any], job: TrainingJob) -> list[Operation] | None:
    """Return the JSON patch of the job; None for a step that does not write the job."""
    patch: list[Operation] | None
    match step:
        case Unsuspend(plan, _, _, interfaces, state):
            patch = job_patch.unsuspend_patch(raw, job, plan, interfaces=interfaces, state=state)
        case Replan(plan):
            patch = job_patch.replan_patch(raw, job, plan)
        case Suspend(state, workers):
            patch = job_patch.suspend_patch(raw, job, state, workers=workers)
        case ForgetPlan(state):
            patch = job_patch.forget_plan_patch(raw, job, state)
        case Rescale(plan=plan, workers=workers, state=state):
            patch = job_patch.rescale_patch(raw, job, plan, workers=workers, state=state)
        case SaveState(state, workers):
            patch = job_patch.save_state_patch(raw, job, state, workers=workers)
        case DeleteUnbound(state=state) | Resize(state=state) | RestartWorkers(state=state):
            patch = job_patch.save_state_patch(raw, job, state)
        case Release(verdict=verdict):
            patch = job_patch.release_patch(raw, job, verdict)
        case Pin() | Ungate() | RequestCheckpoint() | Wait():
            patch = None
        case _:
            assert_never(step)
    return patch


def pod_writes(step: Step, job: TrainingJob) -> list[tuple[Pod, Change]]:
    """Return the writes of a step to pods, each independent of the others."""
    writes: list[tuple[Pod, Change]]
    match step:
        case Pin(pins):
            writes = [(pod, pod_patch.pin(pod, to, share=step.share_of(pod))) for pod, to in pins]
        case Ungate(pods):
            writes = [(pod, pod_patch.ungate(pod)) for pod in pods]
        case RequestCheckpoint(pods, number):
            writes = [(pod, pod_patch.request_patch(pod, number)) for pod in pods]
        case Resize(sizes):
            container = job.kind.container
            writes = [(pod, pod_patch.resize(pod, to, container=container)) for pod, to in sizes]
        case DeleteUnbound(pods=pods) | Release(pods=pods) | RestartWorkers(pods=pods):
            writes = [(pod, None) for pod in pods]
        case Unsuspend() | Replan() | Suspend() | ForgetPlan() | Rescale() | SaveState() | Wait():
            writes = []
        case _:
            assert_never(step)
    return writes
