"""The agent as a client of the API server: it reads the node's pods, and writes its SharedGPUs."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import msgspec
import structlog

from kfext.errors import ApiError, NotFound
from kfext.gpu.agent.report import Pod, SharerReport, SlotReport
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.informer import Informer
from kfext.model.gpu import UNITS, GpuShare, decode_terms, reservation_of
from kfext.model.shared_gpu import EVICTED_AFTER, LONGEST_TROUBLE
from kfext.model.tolerant import mapping, strings, text
from kfext.names import API_GROUP, API_VERSION, GPU_NAMESPACE, GPU_TERMS


@dataclass(frozen=True, slots=True)
class _NodePod:
    pod: Pod
    uid: str
    terms: GpuShare | None
    runs: bool


class NodePods:
    """Watches the pods of the node."""

    def __init__(self, client: Client, *, node: str) -> None:
        self._pods = Informer(
            client,
            paths.pods(),
            decode=_decode,
            selectors={"fieldSelector": f"spec.nodeName={node}"},
        )
        self.synced = self._pods.synced
        self.run = self._pods.run

    def terms(self, pod: Pod) -> GpuShare | None:
        """Return the terms on which a pod shares its card; None means no such pod, or no terms."""
        known = self._known(pod)
        return known.terms if known else None

    def uid(self, pod: Pod) -> str:
        """Return the uid of a pod; empty for an unknown pod."""
        known = self._known(pod)
        return known.uid if known else ""

    def running(self) -> frozenset[Pod]:
        """Return the running pods that share a card or belong to kfext."""
        pods = (pod for pod in self._pods.store if pod.terms or pod.pod[0] == GPU_NAMESPACE)
        return frozenset(pod.pod for pod in pods if pod.runs)

    def _known(self, pod: Pod) -> _NodePod | None:
        namespace, name = pod
        return self._pods.store.by_name(name, namespace=namespace)


def _decode(raw: bytes) -> _NodePod:
    pod = mapping(msgspec.json.decode(raw))
    metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    terms = strings(metadata.get("annotations")).get(GPU_TERMS, "")
    return _NodePod(
        pod=(text(metadata.get("namespace")), text(metadata.get("name"))),
        uid=text(metadata.get("uid")),
        terms=decode_terms(terms),
        runs=status.get("phase") == "Running" and not metadata.get("deletionTimestamp"),
    )


_log = structlog.get_logger(__name__)

PAUSE_SECONDS = 10.0
"""Pause between two writes of a slot with new measurements. A change of a value that decisions
depend on is written at once."""
REPEAT_SECONDS = 60.0
"""An unchanged slot is written again after this time, in case it was deleted or edited by hand. If
it was not, the API server stores nothing."""
_POLL_SECONDS = 1.0
_STEP = 10
"""Fractions are rounded to a multiple of this many thousandths, because each change is a write."""
_MIB = 2**20

Object = dict[str, Any]


class SharedGpus:
    """Keeps the SharedGPU of each slot current.

    `node`: the name of the Node, which owns them. `reports`: returns the reports of its slots.
    """

    def __init__(
        self, client: Client, *, node: str, reports: Callable[[], Sequence[SlotReport]]
    ) -> None:
        self._client = client
        self._node = node
        self._reports = reports
        self._written: dict[int, tuple[Object, float]] = {}

    async def run(self) -> None:
        """Write changed slots until cancelled."""
        while True:
            for report in self._reports():
                try:
                    await self.write(report, now=monotonic())
                except ApiError as error:
                    _log.warning("slot not shown", slot=report.slot, why=str(error))
            await asyncio.sleep(_POLL_SECONDS)

    async def write(self, report: SlotReport, *, now: float) -> None:
        """Write a slot if it is due. Raises ApiError."""
        slot, status = report.slot, status_of(report)
        written, written_at = self._written.get(slot, ({}, 0.0))
        pause = REPEAT_SECONDS if status == written else PAUSE_SECONDS
        if written and _decisive(status) == _decisive(written) and now - written_at < pause:
            return
        if not written:
            await self._create(slot)
        try:
            await self._apply(slot, {"status": status}, subresource="status")
        except NotFound:
            self._written.pop(slot, None)  # deleted by hand; the next call creates it again
            raise
        self._written[slot] = (status, now)

    async def _create(self, slot: int) -> None:
        """Create the SharedGPU of a slot if it does not exist."""
        node = mapping((await self._client.get(paths.nodes(self._node))).get("metadata"))
        uid = text(node.get("uid"))  # it changes if the Node is deleted and registered again
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        spec = {"node": self._node, "slot": slot}
        await self._apply(slot, {"spec": spec}, metadata={"ownerReferences": [owner]})

    async def _apply(
        self, slot: int, content: Object, *, metadata: Object | None = None, subresource: str = ""
    ) -> None:
        name = reservation_of(self._node, slot)
        body = {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": "SharedGPU",
            "metadata": {"name": name, **(metadata or {})},
            **content,
        }
        await self._client.apply(paths.shared_gpus(name, subresource), body)


def status_of(report: SlotReport) -> Object:
    """Return the status of a SharedGPU."""
    sharers = [_sharer(sharer, report) for sharer in report.sharers]
    status: Object = {
        "memoryMiB": report.state.memory,
        "healthy": not report.state.trouble,
        "trouble": report.state.trouble[:LONGEST_TROUBLE],
        "moved": report.state.moved,
        "sharers": sorted(sharers, key=lambda sharer: (sharer["namespace"], sharer["pod"])),
    }
    if report.card is not None and report.reservation:
        status |= {"card": report.card, "reservation": report.reservation}
    return status


def _sharer(sharer: SharerReport, report: SlotReport) -> Object:
    shown: Object = {
        "podUID": sharer.uid,
        "namespace": sharer.namespace,
        "pod": sharer.pod,
        "priority": "high" if sharer.high else "low",
        "sharePercent": round(sharer.share * UNITS),
    }
    if sharer.memory is not None:
        shown["memoryMiB"] = sharer.memory // _MIB
    if sharer.busy is not None:
        shown["busyPermille"] = _permille(sharer.busy)
    if sharer.unhooked:
        shown["unhooked"] = sharer.unhooked
    if sharer.high:
        if report.loss is not None:
            shown["lossPermille"] = max(_permille(report.loss), 0)
        return shown
    if sharer.used is not None:
        shown["harvestPermille"] = _permille(sharer.used)
    shown |= {"waitedSeconds": int(sharer.waited), "intrudedSeconds": int(sharer.intruded)}
    if sharer.coarse:
        shown["coarseMillis"] = max(math.ceil((sharer.longest or 0.0) * 1000), 1)
    if sharer.infeasible:
        shown["guaranteeInfeasible"] = True
    if sharer.strikes:
        shown["strikes"] = min(sharer.strikes, EVICTED_AFTER)
    if sharer.evict:
        shown["evict"] = True
    return shown


def _decisive(status: Object) -> tuple[object, ...]:
    """Return the fields of a status that affect decisions on jobs."""
    sharers = [
        tuple(sharer.get(key) for key in ("podUID", "strikes", "evict"))
        for sharer in status["sharers"]
    ]
    keys = ("reservation", "card", "memoryMiB", "trouble", "moved")
    return (*(status.get(key) for key in keys), sharers)


def _permille(fraction: float) -> int:
    return min(round(fraction * 1000 / _STEP) * _STEP, 1000)
