"""Writes every step of a job, a card or a placeholder: as patches, creations and deletions."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, assert_never

from kfext.core.lifecycle.patience import REPORTS
from kfext.core.lifecycle.steps import (
    Change,
    OfRunningJob,
    Replan,
    SaveState,
    Step,
    Suspend,
    Unsuspend,
    event_of,
    job_operations,
    pod_writes,
)
from kfext.core.patches import pod as pod_patch
from kfext.core.patches.json_patch import Operation
from kfext.core.patches.placeholder import placeholder
from kfext.errors import ApiError, Conflict, NotFound, NotServed
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.events import EventRecorder
from kfext.kube.wire import decode_pod
from kfext.model.constraints import NAME_FIELD
from kfext.model.gpu import reservation_of
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import (
    DEFAULT_SCHEDULER,
    GPU_NAMESPACE,
    GPU_SLOT,
    NEW_NODES_NAMESPACE,
    REASON_CREATE_TIMEOUT,
    REASON_HOST_NETWORK,
    REQUIRED,
    RESERVATION_TEMPLATE,
)
from kfext.state.mirror.cards import Reserve, Unreserve
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.placeholders import Ask, Withdraw
from kfext.state.mirror.tracked_job import TrackedJob

_IN_FLIGHT = 64
"""The most requests under way at once, over all jobs."""
_EVENTS = 50
"""The most events of the operator that are read: users may write such events too."""


class StepExecutor:
    """Writes steps to the API server, and passes the answers to `cluster`.

    `placeholder_template`: the pod template of placeholders.

    The number of requests under way is bounded. Requests about pods of running jobs have a bound of
    their own, a quarter of the first, so that no placement waits for them.
    """

    def __init__(self, *, client: Client, cluster: Cluster, events: EventRecorder) -> None:
        self.placeholder_template: Mapping[str, Any] = {}
        self._client = client
        self._cluster = cluster
        self._events = events
        self._bound = asyncio.Semaphore(_IN_FLIGHT)
        self._running_bound = asyncio.Semaphore(_IN_FLIGHT // 4)

    async def write(self, tracked: TrackedJob, step: Step) -> bool:
        """Carry out a step of a job; return whether all of it was done. Raises ApiError.

        Pods are independent: a pod that has changed meanwhile is skipped until the next decision.
        """
        job = tracked.job
        if isinstance(step, Suspend):
            step = replace(step, state=await self._with_operator_error(job, step.state))
        elif isinstance(step, SaveState) and step.warns:
            step = await self._with_autoscaler_error(job, step)
        operations = job_operations(step, tracked.raw, job)
        if operations is not None:
            await self._patch_job(job, operations)
        running = isinstance(step, OfRunningJob)
        if not running:
            self._record_events(job, step)
        writes = (self._write_pod(pod, change) for pod, change in pod_writes(step, job))
        bound = self._running_bound if running else self._bound
        complete = await self._write_each(writes, bound=bound)
        if running:
            self._record_events(job, step)
        return complete

    async def write_card(self, step: Reserve | Unreserve) -> None:
        """Create or delete the pod that reserves a GPU for a slot. Raises ApiError.

        The pod is made from the PodTemplate RESERVATION_TEMPLATE, a part of the installation.
        """
        match step:
            case Reserve():
                template = paths.pod_templates(GPU_NAMESPACE, RESERVATION_TEMPLATE)
                stored = await self._client.get(template)
                body = _reservation(mapping(stored.get("template")), step)
                with suppress(Conflict):  # the slot gives the pod its name, so the pod exists
                    await self._client.create(paths.pods(GPU_NAMESPACE), body)
            case Unreserve(pod=pod):
                with suppress(NotFound, Conflict):  # the pod is gone, or a new pod has its name
                    await self._client.delete(paths.pods(pod.namespace, pod.name), uid=pod.uid)
            case _:
                assert_never(step)

    async def write_placeholder(self, step: Ask | Withdraw) -> None:
        """Create or delete a placeholder. Raises ApiError.

        It is deleted with its own grace period: after a forced deletion, a device stays allocated.
        """
        match step:
            case Ask(name, job_uid, member, limits):
                template = self.placeholder_template
                body = placeholder(template, member, limits, name=name, job_uid=job_uid)
                async with self._bound:
                    with suppress(Conflict):  # its name says its job and shape, so it exists
                        await self._client.create(paths.pods(NEW_NODES_NAMESPACE), body)
            case Withdraw(pod):
                async with self._bound:
                    with suppress(NotFound, Conflict):
                        await self._client.delete(paths.pods(pod.namespace, pod.name), uid=pod.uid)
            case _:
                assert_never(step)

    def _record_events(self, job: TrainingJob, step: Step) -> None:
        if (event := event_of(step)) is not None:
            self._events.record(job, event.verdict, action=event.action, warning=event.warning)
        if isinstance(step, Unsuspend | Replan) and (network := step.network):
            warning = network.reason != REASON_HOST_NETWORK
            self._events.record(job, network, action=type(step).__name__, warning=warning)

    async def _write_pod(self, pod: Pod, change: Change) -> None:
        if change is None:
            await self._delete(pod)
        elif isinstance(change, list):
            await self._patch_pod(pod, change)
        else:
            await self._resize(pod, change)

    async def _patch_job(self, job: TrainingJob, operations: list[Operation]) -> None:
        path = paths.jobs(job.kind, job.namespace, job.name)
        async with self._bound:
            self._cluster.observe_job(await self._client.json_patch(path, operations))

    async def _patch_pod(self, pod: Pod, operations: list[Operation]) -> None:
        path = paths.pods(pod.namespace, pod.name)
        answer = await self._client.json_patch_as(path, operations, decode=decode_pod)
        self._cluster.observe_pod(pod, answer)

    async def _resize(self, pod: Pod, body: pod_patch.Body) -> None:
        path = paths.pods(pod.namespace, pod.name, "resize")
        answer = await self._client.strategic_patch_as(path, body, decode=decode_pod)
        self._cluster.observe_pod(pod, answer)

    async def _delete(self, pod: Pod) -> None:
        """Delete a pod, unless it has changed meanwhile: an unbound pod may have been bound."""
        await self._client.delete(
            paths.pods(pod.namespace, pod.name), uid=pod.uid, resource_version=pod.resource_version
        )

    async def _write_each(
        self, writes: Iterable[Awaitable[None]], *, bound: asyncio.Semaphore
    ) -> bool:
        """Carry out independent writes together; return whether every pod was unchanged.

        Raises ApiError for any other refusal, after all writes have ended.
        """

        async def attempt(write: Awaitable[None]) -> bool:
            async with bound:
                try:
                    await write
                except NotServed:
                    raise
                except (NotFound, Conflict):
                    return False
                return True

        results = await asyncio.gather(*map(attempt, writes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return all(results)

    async def _with_operator_error(self, job: TrainingJob, state: JobState) -> JobState:
        """Add the reason from the operator's event for a pod that it could not create."""
        if state.reason != REASON_CREATE_TIMEOUT:
            return state
        path, notes = paths.events(job.namespace), list[str]()
        for selector in job.kind.create_failures(job):
            try:
                events = await self._client.first(path, count=_EVENTS, fieldSelector=selector)
            except ApiError:
                return state
            notes += [text(mapping(event).get("note")) for event in events]
        # Only an event of this attempt shows whether the host network was the cause.
        on_host_network = state.no_host_network == state.message
        if not notes:
            return replace(state, no_host_network="") if on_host_network else state
        message = f"{state.message}{REPORTS}{notes[-1]}"
        cause = message if on_host_network else state.no_host_network
        return replace(state, message=message, no_host_network=cause)

    async def _with_autoscaler_error(self, job: TrainingJob, step: SaveState) -> SaveState:
        """Add the autoscaler's event about a placeholder without a node."""
        for name in self._cluster.claim_tracker.placeholders.unbound(job.uid):
            selector = f"regarding.kind=Pod,regarding.name={name}"
            path = paths.events(NEW_NODES_NAMESPACE)
            try:
                events = await self._client.first(path, count=_EVENTS, fieldSelector=selector)
            except ApiError:
                return step
            texts = (
                text(mapping(event).get("note"))
                for event in events
                if mapping(event).get("reportingController") != DEFAULT_SCHEDULER
            )
            if notes := [*filter(None, texts)]:
                message = f"{step.state.message}; the autoscaler reports: {notes[-1]}"
                verdict = replace(step.verdict, message=message) if step.verdict else None
                return replace(step, state=replace(step.state, message=message), verdict=verdict)
        return step


def _reservation(template: Mapping[str, Any], step: Reserve) -> dict[str, Any]:
    """Return the pod that reserves a GPU on a node, with the tolerations of its sharers."""
    metadata, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
    node, slot = step.place
    on_node = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [on_node]}]}
    tolerations = [toleration.written() for toleration in step.tolerations]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": reservation_of(node, slot),
            "labels": {**mapping(metadata.get("labels")), GPU_SLOT: str(slot)},
        },
        "spec": {
            **spec,
            "affinity": {"nodeAffinity": {REQUIRED: terms}},
            "tolerations": [*sequence(spec.get("tolerations")), *tolerations],
        },
    }
