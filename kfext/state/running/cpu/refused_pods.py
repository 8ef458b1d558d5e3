"""Nodes have no boosts for a while if kube-scheduler refused a pod that needs their free CPU.

One node at a time loses its boosts for a pod, if the pod then fits. But only kube-scheduler
knows all terms of a pod. So if no pod of a namespace is bound to a node in time, the node ignores
that namespace for a while: a pod that fits nowhere must not cost other namespaces their boosts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kfext.core.ledger.claims import pod_key
from kfext.core.ledger.fit import why_not
from kfext.model.pod import Pod
from kfext.model.quantity import CPU
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.timers import RoundRobin
from kfext.state.running.cpu.contest import SPARE

WAIT_SECONDS = 60.0
"""A node waits this long for a pod; kube-scheduler retries a pod within 10 s."""
REST_SECONDS = 600.0
"""After a wait in vain, the node ignores the pods of that namespace for this long."""
_MAX_PODS = 32
"""The most refused pods that one scan considers."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """The wait of a node, without boosts, for a pod of a namespace."""

    namespace: str
    node: str


class RefusedPods:
    """Chooses a node that waits for each refused pod. Times are in epoch seconds.

    `_waits`: the wait for each pod, by uid. `_since`: when each wait began.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turns = RoundRobin(_MAX_PODS)
        self._waits: dict[str, _Wait] = {}
        self._since: dict[_Wait, float] = {}

    def awaited(
        self, free: Mapping[str, int], raised: Mapping[str, int], *, now: float
    ) -> frozenset[str]:
        """Return the nodes that must have no boosts now, because they wait for a pod.

        `free`: the CPU of each node less all requests as users wrote them, by node. `raised`: the
        sum of its boosts, by node. Both are in millicores.
        """
        refused = self._cluster.claim_tracker.refused
        ignored_until = WAIT_SECONDS + REST_SECONDS
        self._since = {wait: at for wait, at in self._since.items() if now - at < ignored_until}
        for uid, wait in tuple(self._waits.items()):
            claim = self._cluster.ledger.claim_of(pod_key(uid))
            if uid not in refused and claim is not None and claim.node == wait.node:
                self._since.pop(wait, None)
            fits = uid in refused and _cpu(refused[uid]) <= free.get(wait.node, -1)
            if not (fits and self._is_open(wait, now)):
                del self._waits[uid]
        for pod in self._turns.some(list(refused.values())):
            if pod.uid not in self._waits:
                nodes = self._nodes_for(pod, free, raised)
                waits = (_Wait(pod.namespace, node) for node in nodes)
                chosen = next((wait for wait in waits if self._is_open(wait, now)), None)
                if chosen is not None:
                    self._waits[pod.uid] = chosen
                    self._since.setdefault(chosen, now)
        return frozenset(wait.node for wait in self._waits.values())

    def _is_open(self, wait: _Wait, now: float) -> bool:
        return now - self._since.get(wait, now) < WAIT_SECONDS

    def _nodes_for(
        self, pod: Pod, free: Mapping[str, int], raised: Mapping[str, int]
    ) -> Iterator[str]:
        """Yield the nodes where a pod fits without boosts but not beside the boosts."""
        ledger, cpu = self._cluster.ledger, _cpu(pod)
        others = {name: number for name, number in pod.requests.items() if name != CPU}
        available = ledger.free(tuple(others))
        for name, unboosted in sorted(free.items()):
            if not min(unboosted - raised.get(name, 0), int(SPARE * unboosted)) < cpu <= unboosted:
                continue
            node, row = ledger.node(name), ledger.row(name)
            if node is None or row is None or any(available[:, row] < list(others.values())):
                continue
            if pod.constraints is None or why_not(pod.constraints, node) is None:
                yield name


def _cpu(pod: Pod) -> int:
    return pod.requests.get(CPU, 0)
