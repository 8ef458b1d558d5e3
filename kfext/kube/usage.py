"""How much CPU pods and nodes use now, and the reason where that is not known of a pod.

    usage = Usage(client)
    found = await usage.read(pods, nodes={"node-1"})
    found.pods    # for each uid a CpuUse, or a Verdict with the reason
    found.nodes   # by name, the CpuUse of all that runs on a node
    await usage.close()

`read` never raises, and ends within 30 s whatever hangs. What is known of some pods is returned
although it is not of others. The metrics API is asked first, one list for each namespace with pods
of interest; for namespaces of which it states nothing, and for pods that it has left out for two
minutes, the kubelet of each node with such pods. A kubelet has counters, so the first use of a pod
is known from the second call on, at least 5 s after the first. A source that failed is not asked
again for a minute. The use of a node comes from where that of its pods does.

A CpuUse is the mean over a window, which ended `at` (by the clock of the pod's node): 10 to 60 s
with metrics-server, the time between two calls with kubelets. The reasons of Verdicts are the
REASON_CPU_USE names and REASON_KUBELET_UNVERIFIED.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from kfext.kube.client import Client
from kfext.kube.cpu_counters import CpuCounters
from kfext.kube.kubelet import Kubelets, Readings
from kfext.kube.metrics_api import use_of_node, uses_in
from kfext.kube.sources import Sources
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import REASON_CPU_USE_FORBIDDEN, REASON_CPU_USE_PENDING

_LEFT_OUT_SECONDS = 120.0
"""After which the metrics API is taken to have no figures of a pod: it cannot read the node's."""
_SKEW_SECONDS = 5.0
"""Between the clock of a node and that of the API server, which states when a pod was created."""


@dataclass(frozen=True, slots=True)
class Used:
    """What pods use, by uid, or why that is not known; and nodes, by name, so far as it is known.

    That of a node is of all that runs there, also what does not run in a pod.
    """

    pods: Mapping[str, CpuUse | Verdict]
    nodes: Mapping[str, CpuUse]


class Usage:
    """Reads the CPU use of pods and nodes. `monotonic` is a clock that is never set."""

    def __init__(self, client: Client, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._kubelets = Kubelets(client, monotonic=monotonic)
        self._pod_metrics = Sources("metrics API", shared=True, monotonic=monotonic)
        self._node_metrics = Sources("metrics API", shared=False, monotonic=monotonic)
        self._node_kubelets = Sources("kubelet", shared=False, monotonic=monotonic)
        self._pod_counters = CpuCounters(monotonic)
        self._node_counters = CpuCounters(monotonic)
        self._left_out: dict[str, float] = {}

    @property
    def followed(self) -> int:
        """How many pods have a counter that is remembered."""
        return len(self._pod_counters)

    async def close(self) -> None:
        """Close the connections to kubelets."""
        await self._kubelets.close()

    async def read(self, pods: Iterable[Pod], *, nodes: Set[str] = frozenset()) -> Used:
        """Return what pods use, and those nodes of theirs that are named."""
        found: dict[str, CpuUse | Verdict] = {}
        bound = []
        for pod in pods:
            if pod.node_name:
                bound.append(pod)
            else:
                found[pod.uid] = _pending("the pod is not bound yet")
        in_namespace = await self._pod_metrics.ask(
            {pod.namespace for pod in bound}, lambda one: uses_in(self._client, one)
        )
        rest: list[tuple[Pod, Verdict]] = []
        left_out, self._left_out = self._left_out, {}
        for pod in bound:
            uses = in_namespace[pod.namespace]
            stated = uses if isinstance(uses, Verdict) else _stated(pod, uses)
            found[pod.uid] = stated
            if isinstance(uses, Verdict):
                rest.append((pod, uses))
            elif isinstance(stated, Verdict):
                now = self._monotonic()
                since = self._left_out[pod.uid] = left_out.get(pod.uid, now)
                if now - since >= _LEFT_OUT_SECONDS:
                    rest.append((pod, stated))
        on_node = await self._node_kubelets.ask(
            {pod.node_name for pod, _ in rest}, self._kubelets.readings
        )
        for pod, why in rest:
            readings = on_node[pod.node_name]
            if isinstance(readings, Verdict):
                found[pod.uid] = _neither(why, readings)
            else:
                found[pod.uid] = self._counted(pod, readings)
        stated_by_api = {
            pod.node_name for pod in bound if not isinstance(in_namespace[pod.namespace], Verdict)
        }
        used = await self._stated_of(nodes & stated_by_api)
        used |= self._counted_of({name: on_node[name] for name in nodes & on_node.keys()})
        self._pod_counters.forget_old()
        self._node_counters.forget_old()
        return Used(found, used)

    def _counted(self, pod: Pod, readings: Readings) -> CpuUse | Verdict:
        """Return the use of a pod by the counters of its own node: no other is believed of it."""
        reading = readings.pods.get((pod.namespace, pod.name))
        if reading is None:
            return _pending("the kubelet does not count the CPU time of the pod yet")
        use = self._pod_counters.take(pod.uid, reading)
        return use or _pending("the CPU time of the pod was read once; a rate needs two")

    async def _stated_of(self, nodes: Set[str]) -> dict[str, CpuUse]:
        """Return what the metrics API states of nodes."""
        stated = await self._node_metrics.ask(nodes, lambda one: use_of_node(self._client, one))
        return {name: use for name, use in stated.items() if isinstance(use, CpuUse)}

    def _counted_of(self, answers: Mapping[str, Readings | Verdict]) -> dict[str, CpuUse]:
        """Return the use of nodes by the counters of their kubelets."""
        counted = {
            name: self._node_counters.take(name, readings.node)
            for name, readings in answers.items()
            if not isinstance(readings, Verdict) and readings.node is not None
        }
        return {name: use for name, use in counted.items() if use is not None}


def _stated(pod: Pod, uses: Mapping[str, CpuUse]) -> CpuUse | Verdict:
    """Return what the metrics API states of a pod, and not of an earlier one of its name."""
    use = uses.get(pod.name)
    if use is None or use.at - use.window < pod.created - _SKEW_SECONDS:
        return _pending("the metrics API has no figures of the pod yet")
    return use


def _pending(message: str) -> Verdict:
    return Verdict(REASON_CPU_USE_PENDING, message)


def _neither(api: Verdict, kubelet: Verdict) -> Verdict:
    """Return why neither source answers; a missing right is what an administrator can mend."""
    forbidden = REASON_CPU_USE_FORBIDDEN in {api.reason, kubelet.reason}
    reason = REASON_CPU_USE_FORBIDDEN if forbidden else kubelet.reason
    return Verdict(reason, f"{api.message}; {kubelet.message}")
