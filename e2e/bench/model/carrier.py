"""DRAGON in place of kfext: carries out DRAGON's decisions in the simulated cluster."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from e2e.bench.model.dragon import (
    Action,
    Dragon,
    Free,
    Grow,
    Job,
    Passes,
    Running,
    Shrink,
    Start,
    plus,
)
from kfext.core.patches.json_patch import Operation, operations, patched, pointer
from kfext.model.kinds.job_kind import WORKER
from kfext.model.kinds.registered import KINDS
from kfext.sim.cluster import Cluster
from kfext.sim.jobs import Style
from kfext.sim.objects import LiveJob, LivePod, Raw


class Carrier:
    """Starts, resizes and places jobs as DRAGON decides; a `Scheduler` of the cluster.

    Plans count as carried out: the capacity of a pod to remove is free at once, and a planned pod
    waits until it fits. The operator removes the last workers, whichever workers DRAGON chose.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._dragon = cluster, Dragon(began=0.0)
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._servers: dict[str, list[str]] = {}
        self._workers: dict[str, list[str]] = {}
        self._passes = Passes()
        cluster.api.admit = _suspend
        cluster.api.on_job.append(self._observe)
        cluster.kubelets.choose = self._choose

    def next_turn(self) -> float:
        return max(self._passes.next, self._cluster.clock.now)

    def turn(self) -> None:
        now = self._cluster.clock.now
        if not self._passes.due(self._cluster.api.version, now=now):
            return
        free: Free = {node: (size.cpu, 0) for node, size in self._cluster.kubelets.nodes.items()}
        for uid, job in self._running.items():
            for pod, nodes in ((job.server, self._servers[uid]), (job.worker, self._workers[uid])):
                for node in nodes:
                    free[node] = plus(free[node], pod, times=-1)
        running = [
            Running(job, _by_index(self._servers[uid]), _by_index(self._workers[uid]))
            for uid, job in self._running.items()
        ]
        waiting = list(self._waiting.values())
        for action in self._dragon.run(free, waiting=waiting, running=running, now=now):
            self._carry_out(action)

    def _observe(self, live: LiveJob) -> None:
        known = live.uid in self._waiting or live.uid in self._running
        if not known and not live.job.finished:
            self._waiting[live.uid] = _job(live, now=self._cluster.clock.now)
        elif live.job.finished:
            self._running.pop(live.uid, None)

    def _choose(self, live: LivePod, fits: Sequence[str]) -> str | None:
        """Return the node planned for a pod; None means that the pod does not fit there yet."""
        if live.key.type == "ps":
            planned, index = self._servers[live.job.uid], live.key.index
        else:
            planned, index = self._workers[live.job.uid], live.key.index
            index += live.job.spec.leaders if live.key.type == WORKER.lower() else 0
        return planned[index] if index < len(planned) and planned[index] in fits else None

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start(job, servers, workers):
                self._running[job.name] = self._waiting.pop(job.name)
                self._servers[job.name], self._workers[job.name] = list(servers), list(workers)
                live = self._cluster.api.jobs[job.name]
                changes = {"spec": live.job.kind.suspend(False)}
                self._resize(job.name, operations(live.raw, changes))
            case Shrink(uid, victims):
                del self._workers[uid][-len(victims) :]
                self._resize(uid)
            case Grow(uid, nodes):
                self._workers[uid] += nodes
                self._resize(uid)
            case _:
                assert_never(action)

    def _resize(self, uid: str, others: Iterable[Operation] = ()) -> None:
        live = self._cluster.api.jobs[uid]
        number = len(self._workers[uid]) - live.spec.leaders
        operations_on_size: list[Operation] = []
        if number and not live.job.kind.rendered:
            path = pointer("spec", live.job.kind.replica_specs, WORKER, "replicas")
            operations_on_size = [{"op": "add", "path": path, "value": number}]
        self._cluster.api.patch_job(uid, [*operations_on_size, *others])


def _suspend(raw: Raw) -> Raw:
    kind = KINDS.get(raw["kind"])
    return patched(raw, operations(raw, {"spec": kind.suspend(True)})) if kind else raw


def _by_index(nodes: Sequence[str]) -> dict[int, str]:
    return dict(enumerate(nodes))


def _job(live: LiveJob, *, now: float) -> Job:
    """Return the job as DRAGON sees it; its name is the uid."""
    spec = live.spec
    requested = spec.workers + spec.leaders
    elastic = spec.bounds is not None and spec.style is not Style.GANG
    least, most = spec.bounds if spec.bounds and elastic else (requested, requested)
    pod = (spec.cpu, 0)
    return Job(live.uid, now, spec.servers, pod, pod, least=least, asked=requested, most=most)
