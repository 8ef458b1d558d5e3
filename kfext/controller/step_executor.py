"""Carry out steps: one patch of a job, or one patch or deletion of each pod, many at once."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import assert_never

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
from kfext.core.patches import resize as resize_patch
from kfext.core.patches.checkpoint import request_patch
from kfext.core.patches.json_patch import Operation
from kfext.errors import ApiError, Conflict, NotFound, NotServed
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.events import EventRecorder, Reference
from kfext.kube.wire import decode_pod
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.model.tolerant import mapping, text
from kfext.model.verdict import Verdict
from kfext.names import REASON_CREATE_TIMEOUT, REASON_HOST_NETWORK, TRAINING_GROUP, TRAINING_VERSION
from kfext.state.cluster import Cluster
from kfext.state.tracked_job import TrackedJob

_IN_FLIGHT = 64
"""Requests under way at once, over all jobs."""
_EVENTS = 50
"""Events of the operator that are looked at: users may write such events too."""


def reference(job: TrainingJob) -> Reference:
    """Return the job as the object that an event is about."""
    return Reference(
        api_version=f"{TRAINING_GROUP}/{TRAINING_VERSION}",
        kind=job.kind.name,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
    )


class StepExecutor:
    """Writes steps to the API server and takes the answers into the mirror.

    The requests under way at once are bounded, over all jobs. Those to pods of jobs that run
    have a bound of their own, a quarter of it, so that no placement waits for them.
    """

    def __init__(self, *, client: Client, cluster: Cluster, events: EventRecorder) -> None:
        self._client = client
        self._cluster = cluster
        self._events = events
        self._room = asyncio.Semaphore(_IN_FLIGHT)
        self._aside = asyncio.Semaphore(_IN_FLIGHT // 4)

    async def write(self, tracked: TrackedJob, step: Step) -> bool:
        """Carry out a step; return whether all of it was done. Raises ApiError.

        Pods are independent: one that changed meanwhile is left for the next decision.
        """
        job = tracked.job
        match step:
            case Unsuspend(plan, verdict, network, interfaces, state):
                patch = job_patch.unsuspend_patch(
                    tracked.raw, job, plan, interfaces=interfaces, state=state
                )
                await self._patch_job(job, patch)
                self._record(job, verdict, action="Unsuspend")
                self._record_network(job, network, action="Unsuspend")
            case Replan(plan, verdict, network):
                await self._patch_job(job, job_patch.replan_patch(tracked.raw, job, plan))
                self._record(job, verdict, action="Replan")
                self._record_network(job, network, action="Replan")
            case Suspend(state, workers):
                state = await self._with_operator_error(job, state)
                patch = job_patch.suspend_patch(tracked.raw, job, state, workers=workers)
                await self._patch_job(job, patch)
                why, warning = Verdict(state.reason, state.message), workers is None
                self._record(job, why, action="Suspend", warning=warning)
            case ForgetPlan(state):
                await self._patch_job(job, job_patch.forget_plan_patch(tracked.raw, job, state))
            case SaveState(state, workers):
                patch = job_patch.save_state_patch(tracked.raw, job, state, workers=workers)
                await self._patch_job(job, patch)
            case Pin(pins):
                return await self._each(
                    self._patch_pod(pod, pod_patch.pin(pod, to, share=step.share_of(pod)))
                    for pod, to in pins
                )
            case Ungate(pods):
                return await self._each(self._patch_pod(pod, pod_patch.ungate(pod)) for pod in pods)
            case DeleteUnbound(pods, state):
                await self._patch_job(job, job_patch.save_state_patch(tracked.raw, job, state))
                why = Verdict(state.reason, state.message)
                self._record(job, why, action="Evict", warning=True)
                return await self._each(self._delete(pod) for pod in pods)
            case Release(pods, verdict):
                await self._patch_job(job, job_patch.release_patch(tracked.raw, job, verdict))
                self._record(job, verdict, action="Release", warning=True)
                return await self._each(self._delete(pod) for pod in pods)
            case Resize() | RequestCheckpoint() | Rescale() | RestartWorkers():
                return await self._change(tracked, step)
            case Wait():
                pass
            case _:
                assert_never(step)
        return True

    async def _change(
        self, tracked: TrackedJob, step: Resize | RequestCheckpoint | Rescale | RestartWorkers
    ) -> bool:
        """Carry out a step on a job that runs; return whether all of it was done."""
        job, complete = tracked.job, True
        match step:
            case Resize(sizes, state):
                await self._patch_job(job, job_patch.save_state_patch(tracked.raw, job, state))
                container = job.kind.container
                writes = (
                    self._resize(pod, resize_patch.resize(pod, size, container=container))
                    for pod, size in sizes
                )
                complete = await self._each(writes, room=self._aside)
            case RequestCheckpoint(pods, number):
                writes = (self._patch_pod(pod, request_patch(pod, number)) for pod in pods)
                complete = await self._each(writes, room=self._aside)
            case Rescale(plan, workers, state):
                patch = job_patch.rescale_patch(
                    tracked.raw, job, plan, workers=workers, state=state
                )
                await self._patch_job(job, patch)
            case RestartWorkers(pods, state):
                await self._patch_job(job, job_patch.save_state_patch(tracked.raw, job, state))
                writes = (self._delete(pod) for pod in pods)
                complete = await self._each(writes, room=self._aside)
            case _:
                assert_never(step)
        self._record(job, step.verdict, action=type(step).__name__)
        return complete

    async def _patch_job(self, job: TrainingJob, operations: list[Operation]) -> None:
        path = paths.jobs(job.kind.plural, job.namespace, job.name)
        async with self._room:
            self._cluster.observe_job(await self._client.json_patch(path, operations))

    async def _patch_pod(self, pod: Pod, operations: list[Operation]) -> None:
        path = paths.pods(pod.namespace, pod.name)
        answer = await self._client.json_patch_as(path, operations, decode=decode_pod)
        self._cluster.observe_pod(pod, answer)

    async def _resize(self, pod: Pod, body: resize_patch.Body) -> None:
        path = paths.pods(pod.namespace, pod.name, "resize")
        answer = await self._client.strategic_patch_as(path, body, decode=decode_pod)
        self._cluster.observe_pod(pod, answer)

    async def _delete(self, pod: Pod) -> None:
        """Delete a pod that is not bound; the preconditions fail if it was bound meanwhile."""
        await self._client.delete(
            paths.pods(pod.namespace, pod.name),
            uid=pod.uid,
            resource_version=pod.resource_version,
        )

    async def _each(
        self, writes: Iterable[Awaitable[None]], *, room: asyncio.Semaphore | None = None
    ) -> bool:
        """Carry out independent writes at once; return whether all found their pod unchanged.

        Any other refusal is raised once all are written. Raises ApiError.
        """

        async def one(write: Awaitable[None]) -> bool:
            async with room or self._room:
                try:
                    await write
                except NotServed:
                    raise
                except (NotFound, Conflict):
                    return False
                return True

        results = await asyncio.gather(*map(one, writes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return all(results)

    async def _with_operator_error(self, job: TrainingJob, state: JobState) -> JobState:
        """Add why the operator could not create a pod, which only its event states."""
        if state.reason != REASON_CREATE_TIMEOUT:
            return state
        path = paths.events(job.namespace)
        of_job = f"regarding.uid={job.uid},reason=FailedCreatePod"
        try:
            events = await self._client.first(path, count=_EVENTS, fieldSelector=of_job)
        except ApiError:
            return state
        notes = [text(mapping(event).get("note")) for event in events]
        # Only an event of this attempt shows whether the host network was the cause.
        tried_there = state.no_host_network == state.message
        if not notes:
            return replace(state, no_host_network="") if tried_there else state
        message = f"{state.message}; the operator reports: {notes[-1]}"
        because = message if tried_there else state.no_host_network
        return replace(state, message=message, no_host_network=because)

    def _record_network(self, job: TrainingJob, network: Verdict | None, *, action: str) -> None:
        if network:
            self._record(job, network, action=action, warning=network.reason != REASON_HOST_NETWORK)

    def _record(
        self, job: TrainingJob, verdict: Verdict, *, action: str, warning: bool = False
    ) -> None:
        self._events.record(
            reference(job),
            reason=verdict.reason,
            message=verdict.message,
            action=action,
            warning=warning,
        )
