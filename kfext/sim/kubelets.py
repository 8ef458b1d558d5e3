"""kube-scheduler and the kubelets of a simulated cluster, which bind pods and share CPU."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kfext.model.pod import ReplicaKey
from kfext.model.quantity import CPU, MEMORY, Resources
from kfext.model.verdict import Verdict
from kfext.names import NATIVE_GPU
from kfext.sim.api import ApiServer
from kfext.sim.clock import Clock
from kfext.sim.nodes import NodeSize
from kfext.sim.objects import LiveJob, LivePod, Raw

_LATE = 1.0
"""Seconds until kube-scheduler binds the pods that may be bound."""
_RESIZE_SECONDS, _RETRY_SECONDS = 1.0, 10.0
"""Seconds until a kubelet resizes a pod, and until it retries a failed resize."""


class Kubelets:
    """kube-scheduler, and the kubelets of all nodes.

    `used`: node -> the requests of its bound pods, until the pods are gone.
    `busy`: the core-seconds that running pods used so far.
    `turn`: returns a sort key; the pod with the lowest key is bound first. `choose`: returns the
        node for a pod, among the nodes with capacity, or None; by default, the emptiest. `lack`:
        returns why a kubelet does not resize a pod yet, or None; it retries every 10 s.
    """

    def __init__(self, api: ApiServer, clock: Clock, nodes: Mapping[str, NodeSize]) -> None:
        self.nodes = dict(nodes)
        self.used: dict[str, Counter[str]] = {node: Counter() for node in nodes}
        self.busy = 0.0
        self.turn: Callable[[LivePod], float] = lambda live: live.number
        self.choose: Callable[[LivePod, Sequence[str]], str | None] = self._emptiest
        self.lack: Callable[[LivePod], Verdict | None] = self._lack
        self._running: dict[str, dict[str, LivePod]] = {node: {} for node in nodes}
        self._held: dict[str, tuple[str, Resources]] = {}
        self._pending: dict[str, LivePod] = {}
        self._scheduled = False
        self._cores_of: dict[str, float] = {}
        self._used_on = dict.fromkeys(nodes, 0.0)
        self._since = 0.0
        self._api = api
        self._clock = clock
        api.on_pod.append(self._observe)
        api.on_gone.append(self._forget)
        api.on_resize.append(lambda live: clock.after(_RESIZE_SECONDS, partial(self._resize, live)))

    def add_node(self, name: str, size: NodeSize) -> None:
        """Add an empty node."""
        self.nodes[name], self.used[name] = size, Counter()
        self._running[name], self._used_on[name] = {}, 0.0
        self._schedule()

    def remove_node(self, name: str) -> None:
        """Remove a node without pods."""
        self.count()
        for by_node in (self.nodes, self.used, self._running, self._used_on):
            by_node.pop(name)

    def delete(self, live: LivePod) -> None:
        """Delete a pod; a pod that was never bound, or has ended, is gone at once."""
        if live.pod.deleting:
            return
        if not live.pod.node_name or live.pod.finished:
            self._api.remove_pod(live)
            return
        self._api.mark_deleted(live)
        self._clock.after(live.job.spec.grace, lambda: self._api.remove_pod(live))

    def count(self) -> None:
        """Update `busy` to the current second."""
        self.busy += sum(self._used_on.values()) / 1000 * (self._clock.now - self._since)
        self._since = self._clock.now

    # --- kube-scheduler ---------------------------------------------------------------------------

    def _observe(self, live: LivePod) -> None:
        pod = live.pod
        if not (pod.node_name or pod.gates or pod.deleting):
            self._pending[pod.uid] = live
            self._schedule()
        if live.runs != (pod.uid in self._running.get(pod.node_name, {})):
            self._run_or_stop(live, runs=live.runs)
        if live.runs and is_printer(live):
            live.job.training.request(pod.checkpoint_request)
        if pod.finished:
            self._free(live)

    def _forget(self, live: LivePod) -> None:
        self._pending.pop(live.pod.uid, None)
        if live.pod.uid in self._running.get(live.pod.node_name, {}):
            self._run_or_stop(live, runs=False)
        self._cores_of.pop(live.pod.uid, None)
        self._free(live)

    def _hold(self, live: LivePod, node: str) -> None:
        self._held[live.pod.uid] = node, live.pod.requests
        self.used[node].update(live.pod.requests)

    def _free(self, live: LivePod) -> None:
        if held := self._held.pop(live.pod.uid, None):
            node, requests = held
            self.used[node].subtract(requests)
            self._schedule()

    def _schedule(self) -> None:
        if self._pending and not self._scheduled:
            self._scheduled = True
            self._clock.after(_LATE, self._bind)

    def _bind(self) -> None:
        self._scheduled = False
        for live in sorted(self._pending.values(), key=self.turn):
            candidates = [live.pod.pinned_to] if live.pod.pinned_to else self.nodes
            node = self.choose(live, [node for node in candidates if self._fits(live, node)])
            if node is None:
                self._cannot_bind(live)
                continue
            del self._pending[live.pod.uid]
            self._hold(live, node)
            self._api.bind(live, node)
            self._clock.after(live.job.spec.starts, partial(self._start, live))

    def _emptiest(self, _live: LivePod, fits: Sequence[str]) -> str | None:
        return max(fits, key=lambda name: self.nodes[name].cpu - self.used[name][CPU], default=None)

    def _fits(self, live: LivePod, node: str) -> bool:
        if node not in self.nodes:
            return False  # it was removed after the pod was pinned to it
        size, used = self.nodes[node], self.used[node]
        if live.job.spec.gpu_type not in {"", size.gpu_type}:
            return False
        has = ((CPU, size.cpu), (MEMORY, size.memory), (NATIVE_GPU, size.gpus))
        return all(used[name] + live.pod.requests.get(name, 0) <= amount for name, amount in has)

    def _cannot_bind(self, live: LivePod) -> None:
        if not live.pod.unschedulable:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            conditions = [{**condition, "message": "0 nodes are available: Insufficient cpu"}]
            self._api.set_phase(live, "Pending", conditions=conditions)

    # --- kubelets ---------------------------------------------------------------------------------

    def _start(self, live: LivePod) -> None:
        if self._api.stores(live) and live.pod.phase == "Pending" and not live.pod.deleting:
            self._api.set_phase(live, "Running", containerStatuses=_allocated(live))

    def _resize(self, live: LivePod) -> None:
        """Apply the resources in the spec of a running pod, if its node has capacity."""
        if not (live.runs and self._api.stores(live)):
            return
        problem = self.lack(live)
        if problem is None:
            self._api.set_phase(live, "Running", containerStatuses=_allocated(live))
            self._free(live)
            self._hold(live, live.pod.node_name)
            self._share_out(live.pod.node_name)
            return
        condition = {"type": "PodResizePending", "status": "True", "reason": problem.reason}
        conditions = [{**condition, "message": problem.message}]
        present = live.raw["status"]["containerStatuses"]
        self._api.set_phase(live, "Running", conditions=conditions, containerStatuses=present)
        self._clock.after(_RETRY_SECONDS, partial(self._resize, live))

    def _lack(self, live: LivePod) -> Verdict | None:
        """Return a Verdict if the node of a pod lacks capacity for the requests in its spec."""
        node = live.pod.node_name
        _, held = self._held[live.pod.uid]
        spare = self.nodes[node].cpu - self.used[node][CPU]
        if live.cpu <= max(held[CPU], spare + held[CPU]):
            return None
        return Verdict("Deferred", "Node didn't have enough resource: cpu")

    def _run_or_stop(self, live: LivePod, *, runs: bool) -> None:
        here = self._running[live.pod.node_name]
        if runs:
            here[live.pod.uid] = live
        else:
            del here[live.pod.uid]
        if is_printer(live) and not runs and not live.pod.finished:
            live.job.training.lose_log()
        _update_training(live.job)
        self._share_out(live.pod.node_name)

    def _share_out(self, node: str) -> None:
        """Divide the CPU of a node among its running pods, and tell their jobs."""
        self.count()
        here = list(self._running[node].values())
        most = [_most(pod) for pod in here]
        if all(at_most == pod.cpu == uses_of(pod) for pod, at_most in zip(here, most, strict=True)):
            self._used_on[node] = float(sum(most))
            return
        cores = by_weight([pod.cpu for pod in here], most, size=self.nodes[node].cpu)
        self._used_on[node] = sum(cores)
        self._cores_of |= {pod.pod.uid: amount for pod, amount in zip(here, cores, strict=True)}
        for job in {pod.job.uid: pod.job for pod in here}.values():
            job.training.set_share(self._share(job))

    def _share(self, job: LiveJob) -> float:
        """Return the fraction of its usable CPU that the slowest pod of a job receives."""
        return min(
            self._cores_of.get(pod.pod.uid, uses_of(pod)) / uses_of(pod)
            for pod in job.pods.values()
            if pod.runs
        )


def uses_of(live: LivePod) -> int:
    """Return the millicores that a pod can use."""
    spec = live.job.spec
    return spec.uses if live.trains or spec.serves is None else spec.serves


def _most(live: LivePod) -> int:
    """Return the millicores that a pod can use within the limit set by its kubelet."""
    limit = live.pod.trainer.given if live.pod.trainer else None
    return uses_of(live) if limit is None else min(uses_of(live), limit)


def _allocated(live: LivePod) -> list[Raw]:
    """Return the containerStatuses of a pod that has the resources of its spec."""
    return [
        {
            "name": container["name"],
            "resources": container["resources"],
            "allocatedResources": container["resources"]["requests"],
        }
        for container in live.raw["spec"]["containers"]
    ]


def _update_training(job: LiveJob) -> None:
    running = [pod for pod in job.pods.values() if pod.runs]
    nodes = [pod.pod.node_name for pod in running if pod.trains]
    job.training.set_running_pods(
        len(nodes),
        others=len(running) - len(nodes) == job.job.pods - job.job.training_pods,
        all_run=len(running) == job.job.pods,
        apart=len(set(nodes)) > 1,
    )


def is_printer(live: LivePod) -> bool:
    """Return whether a pod prints the log of its job."""
    job = live.job.job
    present = {group.type for group in job.groups}
    first = next(type_ for type_ in job.kind.rank_zero if type_ in present)
    return live.key == ReplicaKey(first.lower(), 0)


def by_weight(weights: Sequence[int], most: Sequence[int], *, size: int) -> list[float]:
    """Return the share of each pod of the CPU `size`: by weight, and at most its `most`.

    All amounts are in millicores. This is how CFS shares a CPU among cgroups.
    """
    shares = [0.0] * len(weights)
    hungry, remaining = set(range(len(weights))), float(size)
    while hungry:
        total = sum(weights[index] for index in hungry)
        full = {index for index in hungry if most[index] <= remaining * weights[index] / total}
        if not full:
            for index in hungry:
                shares[index] = remaining * weights[index] / total
            break
        for index in full:
            shares[index] = float(most[index])
            remaining -= most[index]
        hungry -= full
    return shares
