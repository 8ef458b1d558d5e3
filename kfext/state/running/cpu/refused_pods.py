"""Which nodes give raised requests back for the pods that kube-scheduler refused.

One node at a time does so for a pod, and only a node that then has room for it. Some terms of a pod
are known to kube-scheduler alone. So a node on which no pod of a namespace is bound in time rests
from the pods of that namespace: a pod that fits nowhere must not cost other namespaces anything.
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

GIVEN_SECONDS = 60.0
"""How long a node waits for a pod. kube-scheduler tries a pod again within 10 s of its room."""
REST_SECONDS = 600.0
"""How long it then does not wait for the pods of that namespace."""
_MOST_LOOKED = 32
"""The most pods that one look searches a node for."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A node waits for a pod of a namespace."""

    namespace: str
    node: str


class RefusedPods:
    """Chooses a node for each refused pod, and keeps since when nodes wait. Times: epoch seconds.

    `_since`: when a node began to wait for pods of a namespace; it ends when a pod is bound there.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turns = RoundRobin(_MOST_LOOKED)
        self._waits: dict[str, _Wait] = {}
        self._since: dict[_Wait, float] = {}

    def awaited(
        self, free: Mapping[str, int], raised: Mapping[str, int], *, now: float
    ) -> frozenset[str]:
        """Return the nodes that have no raised requests until a pod is bound.

        By node in millicores, `free`: the CPU without all requests as users wrote them. `raised`:
        what requests were raised by.
        """
        refused = self._cluster.claim_tracker.refused
        over = GIVEN_SECONDS + REST_SECONDS
        self._since = {wait: at for wait, at in self._since.items() if now - at < over}
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
        return now - self._since.get(wait, now) < GIVEN_SECONDS

    def _nodes_for(
        self, pod: Pod, free: Mapping[str, int], raised: Mapping[str, int]
    ) -> Iterator[str]:
        """Yield the nodes that have room for a pod unless requests are raised."""
        ledger, cpu = self._cluster.ledger, _cpu(pod)
        others = {name: number for name, number in pod.requests.items() if name != CPU}
        left = ledger.free(tuple(others))
        for name, room in sorted(free.items()):
            if not min(room - raised.get(name, 0), int(SPARE * room)) < cpu <= room:
                continue
            node, row = ledger.node(name), ledger.row(name)
            if node is None or row is None or any(left[:, row] < list(others.values())):
                continue
            if pod.constraints is None or why_not(pod.constraints, node) is None:
                yield name


def _cpu(pod: Pod) -> int:
    return pod.requests.get(CPU, 0)
