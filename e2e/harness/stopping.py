"""A job stopped for another job, a job stopped by a drain, and a job that asks for nodes.

The pods of the stopped jobs still exist. No autoscaler runs: only its ConfigMap is in the cluster.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from e2e.harness import nodes
from e2e.harness.jobs import conditions, suspended, workers
from e2e.harness.kube import Kube, Object, RefusedError
from e2e.harness.pods import end_now, end_slowly, succeed
from e2e.harness.space import Space
from e2e.harness.wait import until
from kfext import names

URGENT, YIELDS, LEAVES, ASKS = "urgent", "yields", "leaves", "asks"
_ONE_GPU, _TWO_GPUS = ({names.NATIVE_GPU: number, "cpu": "1"} for number in ("1", "2"))
_NODE = {"cpu": "32", "memory": "64Gi"}
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_MAPS = "/api/v1/namespaces/kube-system/configmaps"
_PLACEHOLDERS = f"/api/v1/namespaces/{names.NEW_NODES_NAMESPACE}"
_PATIENCE_SECONDS = 300.0


@contextmanager
def autoscaler_seen(kube: Kube) -> Iterator[None]:
    """Create a cluster-autoscaler's ConfigMap, which controllers that start in the block see."""
    metadata = {"name": "cluster-autoscaler-status"}
    kube.create(_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    try:
        yield
    finally:
        kube.delete(f"{_MAPS}/cluster-autoscaler-status")


@dataclass
class Stopping:
    """Each job has a namespace and nodes of its own; the urgent job and YIELDS share them."""

    preempting: Space
    draining: Space
    asking: Space
    refuge: str = ""
    """The node that the drained job moves to."""

    def reach(self) -> None:
        """Submit the jobs and wait until each is in its state."""
        self._ask()
        self._preempt()
        self._drain()

    def proceed(self) -> None:
        """Let the pods end, add a node, and wait until each job is placed."""
        stopped = self.preempting.pods(ending=True) + self.draining.pods(ending=True)
        assert len(stopped) == 4, "the pods of both stopped jobs still exist, and no others"
        self.end_pods()
        self.preempting.bound(URGENT, 1)
        assert suspended(self.preempting.job(YIELDS)), "it waits for the urgent job"
        self.draining.bound(LEAVES, 2)
        self.draining.phase(LEAVES, "Placed")
        assert set(self.draining.nodes_by_pod(LEAVES).values()) == {self.refuge}
        succeed(self.preempting, f"{URGENT}-master-0")
        self.preempting.bound(YIELDS, 2)
        self.preempting.phase(YIELDS, "Placed")
        self.asking.nodes(1, **_NODE, gpu="4")
        self.asking.bound(ASKS, 4)
        self.asking.phase(ASKS, "Placed")
        until(lambda: not self._placeholders(), what="no placeholder is left")
        for space, name in ((self.preempting, YIELDS), (self.draining, LEAVES)):
            assert "Failed" not in conditions(space.job(name))

    def check_writes(self) -> None:
        """Check that each stopped job was started twice, and the others once."""
        spaces = (self.preempting, self.draining, self.asking)
        assert [space.starts() for space in spaces] == [3, 2, 1]
        assert [set(space.pins().values()) for space in spaces] == [{1, 2}, {2}, {1}]

    def end_pods(self) -> None:
        for space in (self.preempting, self.draining):
            pods = space.pods(ending=True)
            end_now(space, [pod["metadata"]["name"] for pod in pods])

    def _preempt(self) -> None:
        """Submit an urgent job; kfext stops a job for it that allows this without a checkpoint."""
        space = self.preempting
        # 0.3 would let kube-scheduler preempt the terminating pods.
        placement = {"releaseAfter": "1h", "newNodes": "wait"}
        preempt = {"mode": "act", "parameters": {"wait": 1}}
        space.policy(placement=placement, companion={"preempt": preempt})
        space.nodes(1, **_NODE, gpu="2")
        _run(space, YIELDS)
        urgent = {"priorityClassName": space.name}
        stored = space.submit(workers(URGENT, 1, each=_TWO_GPUS, pod=urgent))
        _wait_stopped(space, YIELDS, names.REASON_STOPPED)
        assert _state(space.job(YIELDS))["stop"]["for"] == stored["metadata"]["uid"]

    def _drain(self) -> None:
        """Drain the node of a job that then moves to another node."""
        space = self.draining
        created = space.nodes(2, **_NODE, gpu="2")
        (self.refuge,) = set(created) - {home := _run(space, LEAVES)}
        taint = {"key": names.DRAIN, "effect": "PreferNoSchedule"}
        space.kube.patch(nodes.path(home), {"spec": {"unschedulable": True, "taints": [taint]}})
        _wait_stopped(space, LEAVES, names.REASON_DRAINED)

    def _ask(self) -> None:
        """Submit a job that asks for nodes for all its pods."""
        space = self.asking
        space.policy(placement={"releaseAfter": "1h"})  # 0.3 would release it after a minute
        space.nodes(1, **_NODE, gpu="2")
        space.submit(workers(ASKS, 4, each=_ONE_GPU))
        space.until(lambda: len(self._placeholders()) == 4, "a placeholder for each pod")
        assert space.phase(ASKS, "Queued")["reason"] == names.REASON_WAITING_FOR_NODES

    def _placeholders(self) -> list[Object]:
        return self.asking.kube.items(f"{_PLACEHOLDERS}/pods")


def _run(space: Space, name: str) -> str:
    """Run a job that may be stopped, with pods that end slowly; return its node."""
    space.submit(workers(name, 2, each=_ONE_GPU, annotations={names.PREEMPT: "always"}))
    (home,) = set(space.bound(name, 2).values())
    space.phase(name, "Placed")
    end_slowly(space, list(space.nodes_by_pod(name)))
    return home


def _wait_stopped(space: Space, name: str, reason: str) -> None:
    """Wait until a job is stopped, and all its pods are terminating."""

    def ends() -> bool:
        stopped = _state(space.job(name)).get("reason") == reason
        return stopped and suspended(space.job(name)) and not space.pods(name)

    space.patiently(ends, seconds=_PATIENCE_SECONDS)


def remove_placeholders(kube: Kube) -> None:
    """Follow docs/upgrade.md after a rollback to 0.3."""
    kube.delete(_PLACEHOLDERS)
    until(lambda: kube.find(_PLACEHOLDERS) is None, what="the namespace of placeholders is gone")


def _state(job: Object) -> Object:
    state: Object = json.loads(job["metadata"]["annotations"].get(names.STATE, "{}"))
    return state


@contextmanager
def stopping(new_space: Callable[..., Space]) -> Iterator[Stopping]:
    """Yield the jobs, with a priority class; at the end of the block all pods may end."""
    jobs = Stopping(new_space(), new_space(), new_space())
    kube, name = jobs.preempting.kube, jobs.preempting.name
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    kube.create(_CLASSES, {**body, "metadata": {"name": name}})
    try:
        yield jobs
    finally:
        with suppress(RefusedError):  # without a finalizer their namespaces can end
            jobs.end_pods()
        kube.delete(f"{_CLASSES}/{name}")
