"""A simulated autoscaler, which adds nodes for kfext's placeholders and removes empty nodes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from kfext.core.patches.placeholder import placeholder
from kfext.model.pod import Pod, parse_pod
from kfext.model.policy import TrainingPolicy
from kfext.model.timestamps import written_time
from kfext.names import PLACEHOLDER_PRIORITY
from kfext.sim.jobs import JobSpec
from kfext.sim.nodes import NodeSize, node
from kfext.state.mirror.placeholders import Ask, Withdraw
from tests.unit.sim.bed import Bed

TEMPLATE: Mapping[str, Any] = {
    "metadata": {},
    "spec": {"containers": [{"name": "placeholder", "image": "kfext.invalid/placeholder:never"}]},
}
DELAY, EMPTY_SECONDS = 20.0, 30.0
"""Seconds until a launched machine is a node, and until the autoscaler removes an empty node."""


@dataclass(slots=True)
class Market:
    """The nodes that the autoscaler can add, and its faults.

    `size`: the size of every new node. `most`: how many new nodes may exist at once. `delays`: the
    seconds until each next machine is a node, then DELAY; a machine with infinity never joins.
    """

    size: NodeSize
    most: int = 100
    delays: list[float] = field(default_factory=list)


class GrowingBed(Bed):
    """A cluster with an autoscaler, which sees the placeholders of kfext and no other pods.

    `possible`: whether kfext can ask for nodes. `placeholders`: name -> pod. `added`: the names of
    all nodes that it has added. `asks`: how many placeholders were created.
    """

    def __init__(
        self,
        *jobs: JobSpec,
        market: Market,
        policy: TrainingPolicy | None = None,
        possible: bool = True,
        nodes: Mapping[str, int],
    ) -> None:
        self.market = market
        self.possible = possible
        self.placeholders: dict[str, Pod] = {}
        self.added: list[str] = []
        self.asks = 0
        self._launching = 0
        self._empty_since: dict[str, float] = {}
        super().__init__(*jobs, policy=policy, late_writes=True, **nodes)
        self.on_second.append(self._turn)
        self.api.on_pod.append(lambda live: self._make_room(live.pod))

    def _show_world(self) -> None:
        super()._show_world()
        self.planner.queue.observe_autoscaler(present=True, can_ask=self.possible)
        for name in self.added:
            if name in self.kubelets.nodes:
                self.planner.cluster.observe_node(None, self._node(name))
        for pod in self.placeholders.values():
            self.planner.cluster.observe_pod(None, pod)

    # --- writes of kfext --------------------------------------------------------------------------

    def _turn(self) -> None:
        planner, at = self.planner, self.driver.moment.monotonic
        for step in [*planner.placeholder_steps(at)]:
            match step:
                case Ask():
                    self._create(step)
                case Withdraw(pod):
                    self.drop(pod.name)
                case _:
                    assert_never(step)
            planner.placeholders.finish(step, at, accepted=True)
        self._schedule()
        self._launch()
        self._consolidate()
        if self.driver.woken:
            self.driver.turn()
        if self.placeholders or any(name in self.kubelets.nodes for name in self.added):
            self.clock.after(1, lambda: None)

    def _create(self, step: Ask) -> None:
        self.asks += 1
        raw = placeholder(TEMPLATE, step.member, step.limits, name=step.name, job_uid=step.job_uid)
        raw["metadata"] |= {
            "uid": f"uid-{step.name}-{self.asks}",
            "creationTimestamp": written_time(self.clock.wall),
            "resourceVersion": str(self.asks),
        }
        raw["spec"]["priority"] = PLACEHOLDER_PRIORITY
        self._put(step.name, replace(parse_pod(raw), unschedulable="no node"))

    def _put(self, name: str, pod: Pod | None) -> None:
        before = self.placeholders.pop(name, None)
        if pod is not None:
            self.placeholders[name] = pod
        self.planner.cluster.observe_pod(before, pod)

    def drop(self, name: str) -> None:
        """Delete a placeholder, or preempt it."""
        if name in self.placeholders:
            self._put(name, None)

    # --- kube-scheduler ---------------------------------------------------------------------------

    def free(self, name: str) -> Counter[str]:
        """Return the capacity of a node that pods and placeholders leave free."""
        size = self.kubelets.nodes[name]
        left = Counter({"cpu": size.cpu, "memory": size.memory, "nvidia.com/gpu": size.gpus})
        left.subtract({key: n for key, n in self.kubelets.used[name].items() if key in left})
        for pod in self.placeholders_on(name):
            left.subtract({key: n for key, n in pod.requests.items() if key in left})
        return left

    def bind_rival(self, name: str, *, cpu: int) -> None:
        """Bind a foreign pod to a node, preempting the placeholders there."""
        amounts = {"cpu": cpu, "pods": 1}
        self.kubelets.used[name].update(amounts)
        pod = Pod("others", f"rival-{name}", f"uid-rival-{name}", node_name=name, requests=amounts)
        self.planner.cluster.observe_pod(None, pod)
        self._make_room(pod)

    def placeholders_on(self, name: str) -> list[Pod]:
        """Return the placeholders on a node."""
        return [pod for pod in self.placeholders.values() if pod.node_name == name]

    def _make_room(self, pod: Pod) -> None:
        """Preempt placeholders for a pod that was just bound."""
        if pod.node_name not in self.kubelets.nodes or pod.finished or pod.deleting:
            return
        for victim in self.placeholders_on(pod.node_name):
            if min(self.free(pod.node_name).values()) >= 0:
                return
            self.drop(victim.name)

    def _schedule(self) -> None:
        for name, pod in [*self.placeholders.items()]:
            if not pod.node_name and (home := self._home(pod)):
                self._put(name, replace(pod, node_name=home, unschedulable=""))

    def _home(self, pod: Pod) -> str:
        open_nodes = [name for name in self.kubelets.nodes if name not in self.faults.closed]
        for name in open_nodes:
            free = self.free(name)
            if all(free[key] >= number for key, number in pod.requests.items() if key in free):
                return name
        return ""

    # --- the autoscaler ---------------------------------------------------------------------------

    def _node(self, name: str) -> Any:
        at = float(name.rsplit("-", 1)[1])
        return replace(node(name, self.market.size), created=self.clock.wall - self.clock.now + at)

    def _launch(self) -> None:
        """Launch as many machines as the placeholders without a node need."""
        waiting = [pod for pod in self.placeholders.values() if not pod.node_name]
        size = self.market.size
        per_node = max(1, min(_pods_per_node(size, pod) for pod in waiting)) if waiting else 1
        needed = -(-len(waiting) // per_node) - self._launching
        live = sum(name in self.kubelets.nodes for name in self.added) + self._launching
        for _ in range(min(needed, self.market.most - live)):
            self._launching += 1
            delay = self.market.delays.pop(0) if self.market.delays else DELAY
            if delay < 1e6:
                self.clock.after(delay, self._join)

    def _join(self) -> None:
        self._launching -= 1
        name = f"new{len(self.added)}-{self.clock.now:.0f}"
        self.added.append(name)
        self.kubelets.add_node(name, self.market.size)
        self.planner.cluster.observe_node(None, self._node(name))

    def _consolidate(self) -> None:
        for name in self.added:
            if name not in self.kubelets.nodes:
                continue
            busy = self.placeholders_on(name) or any(self.kubelets.used[name].values())
            since = self._empty_since.setdefault(name, self.clock.now)
            if busy:
                self._empty_since[name] = self.clock.now + 1
            elif self.clock.now - since >= EMPTY_SECONDS:
                self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a node and its pods."""
        pods = [live for job in self.jobs for live in job.pods.values()]
        for live in [live for live in pods if live.pod.node_name == name]:
            self.api.mark_deleted(live)
            self.api.remove_pod(live)
        for pod in self.placeholders_on(name):
            self.drop(pod.name)
        self.faults.closed.discard(name)
        self.planner.cluster.observe_node(self._node(name), None)
        self.kubelets.remove_node(name)

    # --- questions of tests -----------------------------------------------------------------------

    def bound(self, name: str = "train") -> int:
        """Return the number of bound pods of a job."""
        job = self.api.jobs.get(f"uid-{name}")
        return sum(bool(live.pod.node_name) for live in job.pods.values()) if job else 0

    def reason(self, name: str = "train") -> str:
        """Return the reason why a job waits, one word."""
        verdict = self.planner.cluster.jobs[f"uid-{name}"].verdict
        return verdict.reason if verdict else ""

    def message(self, name: str = "train") -> str:
        """Return why a job waits, in words."""
        verdict = self.planner.cluster.jobs[f"uid-{name}"].verdict
        return verdict.message if verdict else ""


def _pods_per_node(size: NodeSize, pod: Pod) -> int:
    has = {"cpu": size.cpu, "memory": size.memory, "nvidia.com/gpu": size.gpus}
    return min(has[key] // number for key, number in pod.requests.items() if has.get(key))
