"""Which pod of DRAGON's jobs goes where, and the commands that bring it there.

What DRAGON decides changes the plan, and what is done follows from how the cluster differs from the
plan: a request that was lost is made again at the next look. Only `carry_out` does I/O.

The operator removes the workers with the highest indices, DRAGON the workers of its choice. So a
worker that keeps its node but not its index begins anew: it is created again under the index of a
chosen worker, on the node of a worker that the operator removed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.bench.companion.site import Pods
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
    holds,
    plus,
)
from e2e.bench.stream.workload import NEED, StreamJob
from e2e.harness.jobs import ended, jobs_path
from e2e.testbed.api import ApiError
from kfext import names

Object = dict[str, Any]
_CHANGED = (404, 409)
"""The API server's answers for a job or pod that has gone or changed meanwhile."""
Seat = tuple[str, bool, int]
"""A job, whether it is the place of a server, and the index among these or among workers."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Merge a body into a job, which starts it or changes its size."""

    job: StreamJob
    body: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a pod."""

    pod: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Send a pod to a node."""

    pod: str
    node: str


Command = Resize | Delete | Bind


def carry_out(command: Command, pods: Pods) -> None:
    """Do it in a namespace, unless the job or pod that it is about has gone or changed."""
    api = pods.bed.api
    try:
        match command:
            case Resize(job, body):
                api.patch(jobs_path(pods.namespace, job.kind, job.name), body)
            case Delete(pod):
                api.delete(f"{pods.path}/{pod}")
            case Bind(pod, node):
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}}
                api.create(f"{pods.path}/{pod}/binding", {**body, "target": target})
    except ApiError as error:
        if error.status not in _CHANGED:
            raise


class Seats:
    """The jobs as they came, and the node of each of their pods. `whole`: what each node has."""

    def __init__(self, whole: Free, *, began: float) -> None:
        self._whole = whole
        self._dragon = Dragon(began=began)
        self._passes = Passes()
        self._jobs: dict[str, tuple[StreamJob, Job]] = {}
        self._nodes: dict[Seat, str] = {}
        self._started: list[str] = []

    def submit(self, job: StreamJob, *, now: float) -> None:
        """Register a job that comes."""
        self._jobs[job.name] = (job, job.for_dragon(now))

    def look(
        self, jobs: Mapping[str, Object], pods: Sequence[Object], *, now: float
    ) -> list[Command]:
        """Return what is to be done now, by what is there."""
        for name in [name for name in self._jobs if ended(jobs.get(name, {}))]:
            self._forget(name)
        there = {seat: pod for pod in pods if (seat := self._seat(pod)) and not _ends(pod)}
        looks = frozenset((pod["metadata"]["uid"], _node(pod), _ends(pod)) for pod in pods)
        phases = frozenset((pod["metadata"]["uid"], pod["status"].get("phase")) for pod in pods)
        if self._passes.due((looks, phases, frozenset(self._jobs)), now=now):
            for action in self._decided(now=now):
                self._take_in(action)
        return [*self._resizes(jobs), *self._moves(there), *self._bindings(pods, there)]

    def _forget(self, name: str) -> None:
        del self._jobs[name]
        self._started = [started for started in self._started if started != name]
        self._nodes = {seat: node for seat, node in self._nodes.items() if seat[0] != name}

    def _decided(self, *, now: float) -> list[Action]:
        """Return what a pass decides.

        As published, it counts what is planned: a pod that was taken leaves its room at once.
        """
        free = dict(self._whole)
        for node in self._nodes.values():
            free[node] = plus(free[node], NEED, times=-1)
        waiting = [job for name, (_, job) in self._jobs.items() if name not in self._started]
        running = [self._running(self._jobs[name][1]) for name in self._started]
        return self._dragon.run(free, waiting=waiting, running=running, now=now)

    def _running(self, job: Job) -> Running:
        def nodes(*, servers: bool) -> dict[int, str]:
            own = (seat for seat in self._nodes if seat[:2] == (job.name, servers))
            return {seat[2]: self._nodes[seat] for seat in own}

        return Running(job, nodes(servers=True), nodes(servers=False))

    def _take_in(self, action: Action) -> None:
        """Change the plan as it was decided."""
        match action:
            case Start(job, servers, workers):
                self._started.append(job.name)
                self._plan(job.name, servers, servers=True)
                self._plan(job.name, workers)
            case Grow(name, nodes):
                self._plan(name, nodes, first=self._size(name))
            case Shrink(name, victims):
                size = self._size(name)
                own = {index: self._nodes.pop((name, False, index)) for index in range(size)}
                self._plan(name, renumbered(own, victims))

    def _plan(
        self, name: str, nodes: Iterable[str], *, servers: bool = False, first: int = 0
    ) -> None:
        """Note the nodes of servers or workers of a job, which have indices from `first` on."""
        self._nodes |= {(name, servers, n): node for n, node in enumerate(nodes, first)}

    def _resizes(self, jobs: Mapping[str, Object]) -> Iterator[Resize]:
        """Yield what started jobs are to be like, where they are not."""
        for name in self._started:
            job = self._jobs[name][0]
            spec: Object = {"runPolicy": {"suspend": False}}
            if job.elastic:
                type_ = "pytorchReplicaSpecs" if job.kind == "PyTorchJob" else "tfReplicaSpecs"
                spec[type_] = {"Worker": {"replicas": self._size(name)}}
            if not _has(jobs[name]["spec"], spec):
                yield Resize(job, {"spec": spec})

    def _moves(self, there: Mapping[Seat, Object]) -> Iterator[Delete]:
        """Yield the pods that are to be on another node, where they are created again."""
        for seat, pod in there.items():
            if (node := _node(pod)) and self._nodes.get(seat, node) != node:
                yield Delete(pod["metadata"]["name"])

    def _bindings(self, pods: Sequence[Object], there: Mapping[Seat, Object]) -> Iterator[Bind]:
        """Yield where pods go if their nodes have room by now; a kubelet would fail others."""
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
        """Return the place of a pod; None: its job is gone, or the pod has ended."""
        labels = pod["metadata"]["labels"]
        name, index = labels[names.JOB_NAME], int(labels[names.REPLICA_INDEX])
        type_ = labels[names.REPLICA_TYPE].lower()
        if name not in self._jobs or _is_over(pod):
            return None
        if type_ == "ps":
            return (name, True, index)
        rigid_worker = not self._jobs[name][0].elastic and type_ == "worker"
        return (name, False, index + rigid_worker)


def renumbered(nodes: Mapping[int, str], victims: frozenset[int]) -> list[str]:
    """Return the nodes of workers, by index, once some were taken.

    The workers that are left have the lowest indices. A worker with a victim's index takes the node
    of a worker that loses its index.
    """
    size = len(nodes) - len(victims)
    moved = (nodes[index] for index in range(size, len(nodes)) if index not in victims)
    return [next(moved) if index in victims else nodes[index] for index in range(size)]


def _has(found: object, wanted: object) -> bool:
    """Return whether an object is as wanted, whatever else it has."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return all(_has(found.get(key), value) for key, value in wanted.items())
    return found == wanted


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_over(pod: Object) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}
