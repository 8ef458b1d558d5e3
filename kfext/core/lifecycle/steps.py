"""The steps that the controller can carry out for a job: their writes, events and log fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from kfext.core.patches import job as job_patch
from kfext.core.patches import pod as pod_patch
from kfext.core.patches.json_patch import Operation
from kfext.model.cpu_size import CpuSize
from kfext.model.gpu import GpuShare
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Wait:
    """Write nothing. A `phase` of None means that kfext does not handle the job.

    `again`: the seconds until the next decision if no event comes; None means no limit.
    `not_started_reason`: the reason why a job that waits for new nodes does not fit.
    """

    phase: str | None
    verdict: Verdict | None = None
    again: float | None = None
    not_started_reason: str = ""


@dataclass(frozen=True, slots=True)
class Unsuspend:
    """Unsuspend the job under a plan: one patch of the job.

    `network`: the network of its pods and the reason, if the host network was requested.
    `interfaces`: the network interfaces for its traffic on the host network.
    `state`: the state to write, because the time in the queue counts until the gang is whole, and
        the job may start below its requested size.
    `gated_by`: a word for why its pods are gated, or an empty string if they are born pinned.
    """

    plan: Plan
    verdict: Verdict
    network: Verdict | None = None
    interfaces: tuple[str, ...] = ()
    state: JobState | None = None
    gated_by: str = "unknown"


@dataclass(frozen=True, slots=True)
class Replan:
    """Replace the plan of a job with gated pods: one patch of the job.

    `network`: the verdict on the network of its pods, if kfext did not start the job.
    """

    plan: Plan
    verdict: Verdict
    network: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """Pin each gated pod to its node and remove kfext's gate: one patch of each pod.

    `shares`: the GPU shares, by replica type in lower case.
    """

    pins: tuple[tuple[Pod, str], ...]
    shares: Mapping[str, GpuShare] = field(default_factory=dict)

    def share_of(self, pod: Pod) -> GpuShare | None:
        """Return the GPU share of a pod, or None."""
        return self.shares.get(pod.replica.type) if pod.replica else None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Suspend the job again and delete its plan: one patch of the job.

    `workers`: the number of workers for its next start; None means the requested size.
    """

    state: JobState
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """Delete the plan of a job that another client has suspended: one patch of the job."""

    state: JobState


@dataclass(frozen=True, slots=True)
class DeleteUnbound:
    """Record the strike on the job, then delete pods that kube-scheduler did not bind."""

    pods: tuple[Pod, ...]
    state: JobState


@dataclass(frozen=True, slots=True)
class Release:
    """Release the job for good, then delete pinned pods that cannot be bound."""

    pods: tuple[Pod, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Ungate:
    """Remove kfext's gate from the pods of a job that kfext has released."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write only the state of the job; if it was resumed by hand, remove the mark `held`.

    `workers`: the new number of workers of a job that Kueue has taken over, or None for no change.
    `verdict`: the message to users, if any.
    `warns`: whether the message is a warning.
    """

    state: JobState
    workers: int | None = None
    verdict: Verdict | None = None
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Resize:
    """Record the sizes on the job, then resize pods in place: one patch of each.

    Without sizes only the state is written.
    """

    sizes: tuple[tuple[Pod, CpuSize], ...]
    state: JobState
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RequestCheckpoint:
    """Request a checkpoint from a job: one patch of each pod.

    `number`: the growing number of the request; the job answers with it.
    """

    pods: tuple[Pod, ...]
    number: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Rescale:
    """Scale a running job under a new plan: one patch of the job."""

    plan: Plan
    workers: int
    state: JobState
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RestartWorkers:
    """Record the reason on the job, then delete pods that the operator creates again.

    It is for workers that hang because other workers have ended.
    """

    pods: tuple[Pod, ...]
    state: JobState
    verdict: Verdict


Step = (
    Wait
    | Unsuspend
    | Replan
    | Pin
    | Suspend
    | ForgetPlan
    | DeleteUnbound
    | Release
    | Ungate
    | SaveState
    | Resize
    | RequestCheckpoint
    | Rescale
    | RestartWorkers
)

OfRunningJob = Resize | RequestCheckpoint | Rescale | RestartWorkers
"""Steps of a job that continues to train."""

ChangeOfRunningJob = Resize | Rescale | RestartWorkers | Suspend
"""Steps that change or stop a running job."""

STEP_DESCRIPTIONS: dict[str, str] = {
    Unsuspend.__name__: "to unsuspend it under its plan",
    Replan.__name__: "its new plan",
    Pin.__name__: "to pin its pods",
    Suspend.__name__: "to suspend it",
    ForgetPlan.__name__: "to forget its plan",
    DeleteUnbound.__name__: "to delete its unbound pods",
    Release.__name__: "to release it",
    Ungate.__name__: "to ungate its pods",
    SaveState.__name__: "to record its state",
    Resize.__name__: "to resize its pods",
    RequestCheckpoint.__name__: "to ask it for a checkpoint",
    Rescale.__name__: "to give it another number of workers",
    RestartWorkers.__name__: "to record why its workers are replaced",
}
"""What "the API server refuses", as words in a message, by the name of the step's class."""

Change = list[Operation] | pod_patch.Body | None
"""A JSON patch, a strategic merge patch of the subresource `resize`, or None for a deletion."""


def job_operations(step: Step, raw: Mapping[str, Any], job: TrainingJob) -> list[Operation] | None:
    """Return the JSON patch of the job, or None for a step that does not write the job."""
    patch: list[Operation] | None
    match step:
        case Unsuspend(plan, _, _, interfaces, state, gated_by):
            patch = job_patch.unsuspend_patch(
                raw, job, plan, born_pinned=not gated_by, interfaces=interfaces, state=state
            )
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


def plan_after(step: Step) -> tuple[Plan | None, int | None]:
    """Return the plan and the number of workers that a step sets, or None for each unchanged."""
    match step:
        case Unsuspend(plan) | Replan(plan):
            return plan, None
        case Rescale(plan, workers):
            return plan, workers
        case Wait() | Pin() | Suspend() | ForgetPlan() | DeleteUnbound() | Release() | Ungate():
            return None, None
        case SaveState() | Resize() | RequestCheckpoint() | RestartWorkers():
            return None, None
        case _:
            assert_never(step)


@dataclass(frozen=True, slots=True)
class StepEvent:
    """The event about a step; `action`: its machine-readable verb."""

    verdict: Verdict
    action: str
    warning: bool = False


def event_of(step: Step) -> StepEvent | None:
    """Return the event about a step, or None for a step without an event."""
    name = type(step).__name__
    match step:
        case Suspend(state, workers):
            return StepEvent(Verdict(state.reason, state.message), name, warning=workers is None)
        case DeleteUnbound(state=state):
            return StepEvent(Verdict(state.reason, state.message), "Evict", warning=True)
        case Release(verdict=verdict):
            return StepEvent(verdict, name, warning=True)
        case Unsuspend() | Replan() | Resize() | RequestCheckpoint() | Rescale() | RestartWorkers():
            return StepEvent(step.verdict, name)
        case SaveState(verdict=verdict, warns=warns):
            return StepEvent(verdict, "Ask", warning=warns) if verdict else None
        case ForgetPlan() | Pin() | Ungate() | Wait():
            return None
        case _:
            assert_never(step)


def log_fields(step: Step) -> dict[str, object]:
    """Return the fields of a step in a log line: its reason and its nodes."""
    match step:
        case Unsuspend(plan, verdict) | Replan(plan, verdict) | Rescale(plan, verdict=verdict):
            return {"reason": verdict.reason, "nodes": plan.nodes}
        case Pin(pins):
            return {"nodes": tuple(sorted({node for _, node in pins}))}
        case Suspend(state) | SaveState(state):
            return {"reason": state.reason}
        case DeleteUnbound(pods, state):
            return {"reason": state.reason, "nodes": tuple(sorted({pod.home for pod in pods}))}
        case Release() | Resize() | RequestCheckpoint() | RestartWorkers():
            return {"reason": step.verdict.reason}
        case Wait() | Ungate() | ForgetPlan():
            return {}
        case _:
            assert_never(step)
