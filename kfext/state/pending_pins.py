"""The pods that are pinned to a node and not bound yet."""

import heapq
from collections.abc import Callable

from kfext.core.ledger.fit import UNBOUND_SECONDS, could_run, may_be_bound
from kfext.core.ledger.ledger import Ledger
from kfext.model.pod import Pod


class PendingPins:
    """Knows which of them take something from their node. Times are in epoch seconds.

    `planned` returns whether kfext has pinned a pod by a plan: then its lifecycle ends the wait.
    """

    def __init__(self, ledger: Ledger, planned: Callable[[Pod], bool]) -> None:
        self._ledger = ledger
        self._planned = planned
        self._pods: dict[str, Pod] = {}
        self._on: dict[str, set[str]] = {}
        self._ages: list[tuple[float, str]] = []
        self._new: set[str] = set()
        self._old: set[str] = set()

    def all(self) -> tuple[Pod, ...]:
        """Return every such pod."""
        return tuple(self._pods.values())

    def on(self, node: str) -> tuple[Pod, ...]:
        """Return those that are pinned to a node."""
        return tuple(self._pods[uid] for uid in sorted(self._on.get(node, ())))

    def note(self, uid: str, pod: Pod | None) -> None:
        """Take in a pod as it stands, None when it is gone."""
        earlier = self._pods.pop(uid, None)
        if earlier is not None and earlier.pinned_to:
            self._on[earlier.pinned_to].discard(uid)
            if not self._on[earlier.pinned_to]:
                del self._on[earlier.pinned_to]
        if pod is None or not pod.pinned_to or pod.node_name or pod.finished:
            self._new.discard(uid)
            self._old.discard(uid)
            return
        self._pods[uid] = pod
        self._on.setdefault(pod.pinned_to, set()).add(uid)
        if earlier is None:
            self._new.add(uid)

    def count(self, pod: Pod) -> bool:
        """Return whether a pod takes something from the node that it is bound or pinned to."""
        if pod.node_name or not pod.pinned_to:
            return True
        node = self._ledger.node(pod.pinned_to)
        if self._planned(pod):
            return could_run(pod, node)
        return pod.uid not in self._old and may_be_bound(pod, node)

    def aged(self, now: float) -> list[Pod]:
        """Take in the time; return the pods that have waited too long since the last call."""
        for uid in self._new:
            # A pod is no younger than its first sight; a clock that was ahead may have created it.
            created = min(self._pods[uid].created, now)
            heapq.heappush(self._ages, (created + UNBOUND_SECONDS, uid))
        self._new.clear()
        found = []
        while self._ages and self._ages[0][0] <= now:
            _, uid = heapq.heappop(self._ages)
            if uid in self._pods:
                self._old.add(uid)
                found.append(self._pods[uid])
        return found
