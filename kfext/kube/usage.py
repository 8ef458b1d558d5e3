"""The CPU use of pods and nodes from the metrics API (metrics.k8s.io), or why it is unknown.

    usage = Usage(client)
    used = await usage.read(pods, nodes={"node-1"})
    used.pods    # for each uid a CpuUse, or a Verdict with the reason
    used.nodes   # by name, the CpuUse of everything on a node

`read` never raises, and ends within 20 s even if requests hang. It requests one list of training
pods per namespace and label. metrics-server does not page its lists, and users decide on their
length: a list that is too long leaves only its own namespace without metrics. A failed request is
not repeated for a minute.

A CpuUse is the mean over a window: 10 to 60 s with metrics-server. Its `at`, the end of the window,
is by the clock of the pod's node. The use of a pod is the use of its training container: kfext
resizes no sidecar. The reasons of Verdicts are the REASON_CPU_USE names.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kfext.errors import ApiError, Forbidden, NotServed, QuantityError, Unauthorized, Unavailable
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.cpu_use import CpuUse
from kfext.model.kinds.registered import KINDS
from kfext.model.pod import Pod
from kfext.model.quantity import parse_quantity
from kfext.model.timestamps import duration, timestamp
from kfext.model.verdict import Verdict
from kfext.names import (
    JOB_NAME,
    REASON_CPU_USE_FORBIDDEN,
    REASON_CPU_USE_PENDING,
    REASON_CPU_USE_UNAVAILABLE,
)

T = TypeVar("T")

_TRAINERS = frozenset(kind.container for kind in KINDS.values())
MAX_BYTES = 4 * 2**20
"""The most bytes of a list; the metrics of a pod have about 500 bytes."""
AT_ONCE = 8
"""The most concurrent requests."""
ANSWER_SECONDS = 5.0  # for each response
ALL_SECONDS = 10.0  # for all responses together
BACK_OFF_SECONDS = 60.0  # after a failed request
_SKEW_SECONDS = 5.0
"""The tolerated difference of a node's clock from the API server's, which dates a pod."""
_LONGEST_MESSAGE = 200
_ALL_NAMES = ""
"""The key of the back-off of all names; no namespace or node has this name."""


@dataclass(frozen=True, slots=True)
class Used:
    """The use of each pod by uid, or why it is unknown; and the known use of nodes by name.

    The use of a node includes processes outside pods.
    """

    pods: Mapping[str, CpuUse | Verdict]
    nodes: Mapping[str, CpuUse]


class Usage:
    """Reads the CPU use of pods and nodes.

    `labels`: label keys; each pod to read has at least one. `monotonic`: a clock that is never set.
    """

    def __init__(
        self,
        client: Client,
        *,
        labels: Set[str] = frozenset({JOB_NAME}),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._labels = sorted(labels)
        self._client = client
        self._namespaces = BoundedRequests(monotonic)
        self._nodes = BoundedRequests(monotonic)

    async def read(self, pods: Iterable[Pod], *, nodes: Set[str] = frozenset()) -> Used:
        """Return the use of pods, and of the named nodes that they run on."""
        used: dict[str, CpuUse | Verdict] = {}
        bound = []
        for pod in pods:
            if pod.node_name:
                bound.append(pod)
            else:
                used[pod.uid] = Verdict(REASON_CPU_USE_PENDING, "the pod is not bound yet")
        namespaces = {pod.namespace for pod in bound}
        answers = await self._namespaces.request_all(namespaces, self._read_pods)
        measured_nodes: set[str] = set()
        for pod in bound:
            uses = answers[pod.namespace]
            if isinstance(uses, Verdict):
                used[pod.uid] = uses
            else:
                used[pod.uid] = _use_of_pod(pod, uses)
                measured_nodes.add(pod.node_name)
        node_uses = await self._nodes.request_all(nodes & measured_nodes, self._read_node)
        return Used(used, {name: use for name, use in node_uses.items() if isinstance(use, CpuUse)})

    async def _read_pods(self, namespace: str) -> dict[str, CpuUse]:
        path = paths.pod_metrics(namespace)
        uses: dict[str, CpuUse] = {}
        for label in self._labels:
            answer = await self._client.read(path, most=MAX_BYTES, labelSelector=label)
            uses |= uses_of(answer)
        return uses

    async def _read_node(self, node: str) -> CpuUse | None:
        return use_of_node(await self._client.read(paths.node_metrics(node)))


def _use_of_pod(pod: Pod, uses: Mapping[str, CpuUse]) -> CpuUse | Verdict:
    """Return the use of a pod; metrics of an earlier pod with its name do not count."""
    use = uses.get(pod.name)
    if use is None or use.at - use.window < pod.created - _SKEW_SECONDS:
        return Verdict(REASON_CPU_USE_PENDING, "the metrics API has no figures of the pod yet")
    return use


class BoundedRequests:
    """Requests for many namespaces or nodes in bounded time, with a back-off for failed names."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._backoffs: dict[str, tuple[Verdict, float]] = {}

    async def request_all(
        self, names: Iterable[str], request: Callable[[str], Awaitable[T]]
    ) -> dict[str, T | Verdict]:
        """Return the response for each name, or why there is none."""
        now = self._monotonic()
        self._backoffs = {name: entry for name, entry in self._backoffs.items() if now < entry[1]}
        order = sorted(set(names))
        random.shuffle(order)  # otherwise slow answers would always delay the same names
        answers: dict[str, T | Verdict] = {}
        limit = asyncio.Semaphore(AT_ONCE)

        async def request_one(name: str) -> None:
            async with limit:
                if failed := self._backoffs.get(name) or self._backoffs.get(_ALL_NAMES):
                    answers[name] = failed[0]
                    return
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        answers[name] = await request(name)
                except (ApiError, TimeoutError) as error:
                    answers[name] = self._back_off(name, error)

        try:
            async with asyncio.timeout(ALL_SECONDS), asyncio.TaskGroup() as group:
                for name in order:
                    group.create_task(request_one(name))
        except TimeoutError:
            pass
        late = Verdict(REASON_CPU_USE_UNAVAILABLE, "metrics API: other answers took too long")
        return {name: answers.get(name, late) for name in order}

    def _back_off(self, name: str, error: ApiError | TimeoutError) -> Verdict:
        """Start the back-off of a name, or of all names if there is no metrics API."""
        verdict = _why(error)
        key = _ALL_NAMES if isinstance(error, NotServed) else name
        self._backoffs[key] = (verdict, self._monotonic() + BACK_OFF_SECONDS)
        return verdict


def _why(error: ApiError | TimeoutError) -> Verdict:
    if isinstance(error, TimeoutError):
        message = f"metrics API: no answer within {ANSWER_SECONDS:.0f} s"
        return Verdict(REASON_CPU_USE_UNAVAILABLE, message)
    if isinstance(error, NotServed):
        message = "the cluster has no metrics API (metrics.k8s.io): install metrics-server"
        return Verdict(REASON_CPU_USE_UNAVAILABLE, message)
    refused = isinstance(error, Forbidden | Unauthorized)
    reason = REASON_CPU_USE_FORBIDDEN if refused else REASON_CPU_USE_UNAVAILABLE
    return Verdict(reason, f"metrics API: {error.message[:_LONGEST_MESSAGE]}")


class _Metadata(msgspec.Struct):
    name: str


class _Usage(msgspec.Struct):
    cpu: Any = None


class _Container(msgspec.Struct):
    usage: _Usage
    name: str = ""


class _Window(msgspec.Struct):
    timestamp: Any = None
    window: Any = None


class _NodeMetrics(_Window):
    usage: _Usage | None = None


class _PodMetrics(_Window, kw_only=True):
    metadata: _Metadata
    containers: list[_Container] | None = None


class _PodMetricsList(msgspec.Struct):
    items: list[_PodMetrics] | None = None


def uses_of(body: bytes) -> dict[str, CpuUse]:
    """Return the CPU use of the pods of a PodMetricsList, by name; pods without metrics are absent.

    Raises Unavailable for a response that is no such list.
    """
    items = _decoded(body, _PodMetricsList).items or ()
    uses = ((item.metadata.name, _use(item, _usages(item))) for item in items)
    return {name: use for name, use in uses if use is not None}


def _usages(pod: _PodMetrics) -> Iterable[_Usage]:
    return [container.usage for container in pod.containers or () if container.name in _TRAINERS]


def use_of_node(body: bytes) -> CpuUse | None:
    """Return the CPU use in a NodeMetrics, or None. Raises Unavailable for any other response."""
    metrics = _decoded(body, _NodeMetrics)
    return _use(metrics, [metrics.usage] if metrics.usage else [])


def _decoded(body: bytes, form: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.DecodeError as error:
        message = f"the answer is not from the metrics API: {error}"
        raise Unavailable(status=0, reason="Garbled", message=message) from error


def _use(measured: _Window, usages: Iterable[_Usage]) -> CpuUse | None:
    """Return the sum of the usages in a window, or None for invalid values."""
    at, window = timestamp(measured.timestamp), duration(measured.window)
    try:
        cores = [float(parse_quantity(usage.cpu)) for usage in usages]
    except QuantityError:
        return None
    if not cores or min(cores) < 0 or not at or not window:
        return None
    return CpuUse(sum(cores), at=at, window=window)
