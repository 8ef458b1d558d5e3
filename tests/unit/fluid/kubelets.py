"""kube-scheduler and kubelets of a model cluster: which pod is bound, starts, and gets what CPU."""

from collections.abc import Mapping, Sequence
from functools import partial

from tests.unit.fluid.api import Api
from tests.unit.fluid.clock import Clock
from tests.unit.fluid.live import LiveJob, LivePod

_LATE = 1.0
"""Seconds until kube-scheduler looks at a pod that may be bound."""


class Kubelets:
    """Nodes with their millicores.

    `used`: what the bound pods of each node request, until they are gone.
    `busy`: core-seconds that running pods requested so far.
    """

    def __init__(self, api: Api, clock: Clock, nodes: Mapping[str, int]) -> None:
        self.nodes = dict(nodes)
        self.used = dict.fromkeys(nodes, 0)
        self.busy = 0.0
        self._running: dict[str, dict[str, LivePod]] = {node: {} for node in nodes}
        self._held: dict[str, str] = {}
        self._pending: dict[str, LivePod] = {}
        self._noted = False
        self._closed: set[str] = set()
        self._cores, self._since = 0.0, 0.0
        self._api = api
        self._clock = clock
        api.on_pod.append(self._observe)
        api.on_gone.append(self._forget)

    def delete(self, live: LivePod) -> None:
        """Delete a pod: one that was never bound, or has ended, is gone at once."""
        if live.pod.deleting:
            return
        if not live.pod.node_name or live.pod.finished:
            self._api.remove_pod(live)
            return
        self._api.mark_deleted(live)
        self._clock.after(live.job.spec.grace, lambda: self._api.remove_pod(live))

    def close(self, node: str) -> None:
        """Bind no more pods to a node, though nothing of it shows why."""
        self._closed.add(node)

    def lose(self, node: str) -> None:
        """Have a node gone, and its pods with it."""
        self.close(node)
        pods = [live for job in self._api.jobs.values() for live in job.pods.values()]
        for live in (one for one in pods if one.pod.node_name == node):
            self._api.mark_deleted(live)
            self._api.remove_pod(live)

    def regain(self, node: str) -> None:
        """Have a node back, without its pods."""
        self._closed.discard(node)

    def count(self) -> None:
        """Bring `busy` to the present second."""
        self.busy += self._cores * (self._clock.now - self._since)
        self._since = self._clock.now

    # --- kube-scheduler -------------------------------------------------------------------------

    def _observe(self, live: LivePod) -> None:
        pod = live.pod
        if not (pod.node_name or pod.gates or pod.deleting):
            self._pending[pod.uid] = live
            self._note()
        if live.runs != (pod.uid in self._running.get(pod.node_name, {})):
            self._run_or_stop(live)
        if live.runs and is_printer(live):
            live.job.training.request(live.requested)
        if pod.finished:
            self._free(live)

    def _forget(self, live: LivePod) -> None:
        self._pending.pop(live.pod.uid, None)
        self._free(live)

    def _free(self, live: LivePod) -> None:
        node = self._held.pop(live.pod.uid, None)
        if node is not None:
            self.used[node] -= live.cpu
            self._note()

    def _note(self) -> None:
        if self._pending and not self._noted:
            self._noted = True
            self._clock.after(_LATE, self._bind)

    def _bind(self) -> None:
        self._noted = False
        for live in sorted(self._pending.values(), key=lambda one: one.number):
            fits = [node for node in self.nodes if self._fits(live, node)]
            if not fits:
                self._cannot_bind(live)
                continue
            node = max(fits, key=lambda one: self.nodes[one] - self.used[one])
            del self._pending[live.pod.uid]
            self.used[node] += live.cpu
            self._held[live.pod.uid] = node
            self._api.bind(live, node)
            self._clock.after(live.job.spec.starts, partial(self._start, live))

    def _fits(self, live: LivePod, node: str) -> bool:
        here = live.pod.pinned_to in {None, node} and node not in self._closed
        return here and self.used[node] + live.cpu <= self.nodes[node]

    def _cannot_bind(self, live: LivePod) -> None:
        if not live.pod.unschedulable:
            said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            conditions = [{**said, "message": "0 nodes are available: Insufficient cpu"}]
            self._api.set_phase(live, "Pending", conditions=conditions)

    # --- kubelets -------------------------------------------------------------------------------

    def _start(self, live: LivePod) -> None:
        if live.pod.phase == "Pending" and not live.pod.deleting:
            self._api.set_phase(live, "Running")

    def _run_or_stop(self, live: LivePod) -> None:
        self.count()
        here = self._running[live.pod.node_name]
        if live.runs:
            here[live.pod.uid] = live
            self._cores += live.cpu / 1000
        else:
            del here[live.pod.uid]
            self._cores -= live.cpu / 1000
        if is_printer(live) and not live.runs and not live.pod.finished:
            live.job.training.lose_log()
        met(live.job)
        if any(one.job.spec.uses > one.cpu for one in here.values()):
            for job in {one.job.uid: one.job for one in here.values()}.values():
                job.training.get(self._share(job))

    def _share(self, job: LiveJob) -> float:
        """Return the part that the slowest of its pods gets of what it can use."""
        return min(self._cores_of(one) / job.spec.uses for one in job.pods.values() if one.runs)

    def _cores_of(self, live: LivePod) -> float:
        here = list(self._running[live.pod.node_name].values())
        shared = by_weight(
            [one.cpu for one in here],
            [one.job.spec.uses for one in here],
            size=self.nodes[live.pod.node_name],
        )
        return shared[here.index(live)]


def met(job: LiveJob) -> None:
    """Have the training of a job take in which of its pods run."""
    running = [one for one in job.pods.values() if one.runs]
    servers = sum(one.key.type == "ps" for one in running)
    job.training.meet(
        len(running) - servers,
        others=servers == job.spec.servers,
        everyone=len(running) == job.job.pods,
    )


def is_printer(live: LivePod) -> bool:
    """Return whether a pod is the one that prints the log of its job."""
    return live.key.index == 0 and live.key.type == (
        "master" if live.job.spec.masters else "worker"
    )


def by_weight(weights: Sequence[int], most: Sequence[int], *, size: int) -> list[float]:
    """Return how many of `size` millicores each gets: by weight, none more than it can use."""
    found = [0.0] * len(weights)
    open_to, left = set(range(len(weights))), float(size)
    while open_to:
        total = sum(weights[one] for one in open_to)
        full = {one for one in open_to if most[one] <= left * weights[one] / total}
        if not full:
            for one in open_to:
                found[one] = left * weights[one] / total
            break
        for one in full:
            found[one] = float(most[one])
            left -= most[one]
        open_to -= full
    return found
