"""Which pod of DRAGON's jobs goes where, and what has to be done for that. No I/O.

The operator removes the workers with the highest indices, DRAGON those that it has chosen. So a
worker that keeps its node but not its index begins anew: it is created again under the index of one
that was chosen, on the node of one that the operator removed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from e2e.bench.baselines.dragon import (
    Action,
    Dragon,
    Grow,
    Job,
    Passes,
    Running,
    Shrink,
    Start,
)
from e2e.bench.baselines.dragon_nodes import Free, holds, plus
from e2e.bench.stream.commands import Bind, Command, Delete, Resize
from e2e.bench.stream.workload import NEED, StreamJob
from kfext import names

Object = dict[str, Any]
Seat = tuple[str, bool, int]
"""A job, whether it is the place of a server, and the index among these or among workers."""


class Seats:
    """The jobs as they came, and the node of each of their pods. `whole`: what each node has."""

    def __init__(self, whole: Free, *, began: float) -> None:
        self._whole = whole
        self._dragon = Dragon(began=began)
        self._passes = Passes()
        self._jobs: dict[str, tuple[StreamJob, Job]] = {}
        self._nodes: dict[Seat, str] = {}

    def submit(self, job: StreamJob, *, now: float) -> None:
        """Take in a job that comes."""
        self._jobs[job.name] = (job, job.for_dragon(now))

    def look(
        self, jobs: Mapping[str, Object], pods: Sequence[Object], *, now: float
    ) -> list[Command]:
        """Return what is to be done now, by what is there."""
        for name in [name for name in self._jobs if _has_ended(jobs.get(name, {}))]:
            del self._jobs[name]
            self._nodes = {seat: node for seat, node in self._nodes.items() if seat[0] != name}
        there = {seat: pod for pod in pods if (seat := self._seat(pod)) and not _ends(pod)}
        found: list[Command] = []
        looks = frozenset((pod["metadata"]["uid"], _node(pod), _ends(pod)) for pod in pods)
        phases = frozenset((pod["metadata"]["uid"], pod["status"].get("phase")) for pod in pods)
        if self._passes.due((looks, phases, frozenset(self._jobs)), now=now):
            for action in self._decided(now=now):
                found += self._commands(action, there)
        return [*found, *self._bindings(pods, there)]

    def _decided(self, *, now: float) -> list[Action]:
        """Return what a pass decides.

        As published, it counts what is planned: a pod that was taken leaves its room at once.
        """
        free = dict(self._whole)
        for node in self._nodes.values():
            free[node] = plus(free[node], NEED, times=-1)
        started = {seat[0] for seat in self._nodes}
        waiting = [one for name, (_, one) in self._jobs.items() if name not in started]
        running = [self._running(one) for name, (_, one) in self._jobs.items() if name in started]
        return self._dragon.run(free, waiting=waiting, running=running, now=now)

    def _running(self, job: Job) -> Running:
        def nodes(*, servers: bool) -> dict[int, str]:
            own = (seat for seat in self._nodes if seat[:2] == (job.name, servers))
            return {seat[2]: self._nodes[seat] for seat in own}

        return Running(job, nodes(servers=True), nodes(servers=False))

    def _commands(self, action: Action, there: Mapping[Seat, Object]) -> Iterator[Command]:
        """Take in a decision; yield what it needs beside bindings."""
        match action:
            case Start(job, servers, workers):
                self._nodes |= {(job.name, True, n): node for n, node in enumerate(servers)}
                self._nodes |= {(job.name, False, n): node for n, node in enumerate(workers)}
                yield self._resized(job.name, starts=True)
            case Grow(name, nodes):
                first = self._size(name)
                self._nodes |= {(name, False, n): node for n, node in enumerate(nodes, first)}
                yield self._resized(name)
            case Shrink(name, victims):
                yield from self._shrunk(name, victims, there)

    def _shrunk(
        self, name: str, victims: frozenset[int], there: Mapping[Seat, Object]
    ) -> Iterator[Command]:
        own = {index: self._nodes.pop((name, False, index)) for index in range(self._size(name))}
        kept, anew = renumbered(own, victims)
        self._nodes |= {(name, False, index): node for index, node in kept.items()}
        yield self._resized(name)
        for index in anew:
            if pod := there.get((name, False, index)):
                yield Delete(pod["metadata"]["name"])

    def _resized(self, name: str, *, starts: bool = False) -> Resize:
        job, size = self._jobs[name][0], self._size(name)
        body: Object = {"spec": {"runPolicy": {"suspend": False}} if starts else {}}
        if job.elastic:
            type_ = "pytorchReplicaSpecs" if job.kind == "PyTorchJob" else "tfReplicaSpecs"
            body["spec"][type_] = {"Worker": {"replicas": size + job.as_worker}}
        return Resize(job, body)

    def _bindings(self, pods: Sequence[Object], there: Mapping[Seat, Object]) -> Iterator[Bind]:
        """Yield where pods go whose nodes have room by now; a kubelet would fail others."""
        free = self._free(pods)
        for seat, pod in there.items():
            node = self._nodes.get(seat)
            if node and not _node(pod) and holds(free[node], NEED):
                free[node] = plus(free[node], NEED, times=-1)
                yield Bind(pod["metadata"]["name"], node)

    def _free(self, pods: Sequence[Object]) -> Free:
        """Return what each node has beside the pods that are bound to it and have not ended."""
        free = dict(self._whole)
        for pod in pods:
            if (node := _node(pod)) in free and not _is_over(pod):
                free[node] = plus(free[node], NEED, times=-1)
        return free

    def _size(self, name: str) -> int:
        """Return how many workers a job is to have."""
        return sum(seat[:2] == (name, False) for seat in self._nodes)

    def _seat(self, pod: Object) -> Seat | None:
        """Return the place of a pod, None if it is of no job that is left, or has ended."""
        labels = pod["metadata"]["labels"]
        name, index = labels[names.JOB_NAME], int(labels[names.REPLICA_INDEX])
        type_ = labels[names.REPLICA_TYPE].lower()
        if name not in self._jobs or _is_over(pod):
            return None
        job = self._jobs[name][0]
        if job.as_worker:
            return (name, True, 0) if index == 0 else (name, False, index - 1)
        if type_ == "ps":
            return (name, True, index)
        rigid_worker = not job.elastic and type_ == "worker"
        return (name, False, index + rigid_worker)


def renumbered(
    nodes: Mapping[int, str], victims: frozenset[int]
) -> tuple[dict[int, str], list[int]]:
    """Return the nodes of workers once some were taken, and which of them have to begin anew.

    Those that are left have the lowest indices. One whose index is that of a victim takes the node
    of one that loses its index.
    """
    size = len(nodes) - len(victims)
    anew = [index for index in range(size) if index in victims]
    moved = [nodes[index] for index in range(size, len(nodes)) if index not in victims]
    kept = {index: nodes[index] for index in range(size) if index not in victims}
    return {**kept, **dict(zip(anew, moved, strict=True))}, anew


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_over(pod: Object) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def _has_ended(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return any(
        one["type"] in {"Succeeded", "Failed"} and one["status"] == "True" for one in conditions
    )
