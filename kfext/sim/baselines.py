"""Schedulers that kfext is compared with, in its model cluster.

`Plain` is Kubernetes alone: pods are bound one by one, so jobs may start by halves and never end.
`Carrier` carries out a rule of whole jobs: DRAGON as published, equal shares, or the shortest job
first. The last two show what a policy could reach: they know what is left of each job and how fast
it is with each number of workers, and a job saves its work at once before it changes its size.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Protocol, assert_never

from kfext.core.patches.json_patch import Operation, pointer
from kfext.model.kinds.job_kind import WORKER
from kfext.sim.cluster import Cluster
from kfext.sim.dragon import (
    Action,
    Free,
    Grow,
    Job,
    Passes,
    Running,
    Shrink,
    Start,
    plus,
    schedule,
)
from kfext.sim.jobs import Style
from kfext.sim.objects import LiveJob, LivePod, Raw

REST = 60.0
"""Seconds between two changes of the size of a job."""


class Plain:
    """Kubernetes alone. `luck`: draws which of the waiting pods kube-scheduler tries first."""

    def __init__(self, luck: int) -> None:
        self._random = Random(luck)

    def begin(self, cluster: Cluster) -> None:
        """Let jobs start as their users wrote them."""
        cluster.api.admit = lambda raw: raw
        cluster.kubelets.turn = lambda _live: self._random.random()

    def next_turn(self) -> float:
        """Return that nothing is to be decided."""
        return math.inf

    def turn(self) -> None:
        """Do nothing."""


class Rule(Protocol):
    """A rule of whole jobs, with the arguments of `Dragon.run`."""

    def run(
        self, free: Free, *, waiting: Sequence[Job], running: Sequence[Running], now: float
    ) -> list[Action]:
        """Return what is to be done."""
        ...


class Carrier:
    """Starts, resizes and places jobs as a rule says.

    `rule`: returns the rule, which may look at the jobs by uid. `saves`: whether a job saves its
        work at once before it changes its size.

    What is planned counts as done: a pod that is to go leaves its room at once, and a pod that is
    to come waits for the room. The operator removes the last workers, whichever a rule chose.
    """

    def __init__(self, rule: Callable[[Mapping[str, LiveJob]], Rule], *, saves: bool) -> None:
        self._make, self._saves = rule, saves
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._servers: dict[str, list[str]] = {}
        self._workers: dict[str, list[str]] = {}
        self._passes = Passes()

    def begin(self, cluster: Cluster) -> None:
        """Hold all jobs, and place their pods."""
        self._cluster = cluster
        self._rule = self._make(cluster.api.jobs)
        cluster.api.admit = _suspended
        cluster.api.on_job.append(self._observe)
        cluster.kubelets.choose = self._choose

    def next_turn(self) -> float:
        """Return the second of the next pass if nothing happens before."""
        return max(self._passes.next, self._cluster.clock.now)

    def turn(self) -> None:
        """Make a pass if it is due."""
        now = self._cluster.clock.now
        if not self._passes.due(self._cluster.api.version, now=now):
            return
        free: Free = {node: (cpu, 0) for node, cpu in self._cluster.kubelets.nodes.items()}
        for uid, job in self._running.items():
            for pod, nodes in ((job.server, self._servers[uid]), (job.worker, self._workers[uid])):
                for node in nodes:
                    free[node] = plus(free[node], pod, times=-1)
        running = [
            Running(job, _indexed(self._servers[uid]), _indexed(self._workers[uid]))
            for uid, job in self._running.items()
        ]
        waiting = list(self._waiting.values())
        for action in self._rule.run(free, waiting=waiting, running=running, now=now):
            self._carry_out(action)

    def _observe(self, live: LiveJob) -> None:
        known = live.uid in self._waiting or live.uid in self._running
        if not known and not live.job.finished:
            self._waiting[live.uid] = _job(live, now=self._cluster.clock.now)
        elif live.job.finished:
            self._running.pop(live.uid, None)

    def _choose(self, live: LivePod, fits: Sequence[str]) -> str | None:
        """Return the node that was planned for a pod, once it has room."""
        if live.key.type == "ps":
            planned, at = self._servers[live.job.uid], live.key.index
        else:
            planned, at = self._workers[live.job.uid], live.key.index
            at += live.job.spec.leaders if live.key.type == WORKER.lower() else 0
        return planned[at] if at < len(planned) and planned[at] in fits else None

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start(job, servers, workers):
                self._running[job.name] = self._waiting.pop(job.name)
                self._servers[job.name], self._workers[job.name] = list(servers), list(workers)
                path = pointer("spec", "runPolicy", "suspend")
                self._resize(job.name, [{"op": "add", "path": path, "value": False}])
            case Shrink(uid, victims):
                del self._workers[uid][-len(victims) :]
                self._resize(uid)
            case Grow(uid, nodes):
                self._workers[uid] += nodes
                self._resize(uid)
            case _:
                assert_never(action)

    def _resize(self, uid: str, operations: Iterable[Operation] = ()) -> None:
        live = self._cluster.api.jobs[uid]
        if self._saves:
            live.training.save()
        number = len(self._workers[uid]) - live.spec.leaders
        path = pointer("spec", live.job.kind.replica_specs, WORKER, "replicas")
        sized: list[Operation] = [{"op": "add", "path": path, "value": number}] if number else []
        self._cluster.api.patch_job(uid, [*sized, *operations])


def _suspended(raw: Raw) -> Raw:
    if raw["kind"] != "Pod":
        raw["spec"]["runPolicy"]["suspend"] = True
    return raw


def _indexed(nodes: Sequence[str]) -> dict[int, str]:
    return dict(enumerate(nodes))


def _job(live: LiveJob, *, now: float) -> Job:
    """Return a job as rules see it; its name is its uid."""
    spec = live.spec
    asked = spec.workers + spec.leaders
    elastic = spec.bounds is not None and spec.style is not Style.GANG
    least, most = spec.bounds if spec.bounds and elastic else (asked, asked)
    pod = (spec.cpu, 0)
    return Job(live.uid, now, spec.servers, pod, pod, least=least, asked=asked, most=most)


class EqualShare:
    """Each job that fits starts with its fewest workers; the rest goes to the least fulfilled.

    A running job may have more than it asked for, a waiting job may not.
    """

    def __init__(self, jobs: Mapping[str, LiveJob]) -> None:
        self._jobs = jobs
        self._resized: dict[str, float] = {}

    def run(
        self, free: Free, *, waiting: Sequence[Job], running: Sequence[Running], now: float
    ) -> list[Action]:
        """Return the changes to new numbers of workers; nothing shrinks unless it is needed."""
        may = [
            run.job
            for run in running
            if run.job.least < run.job.most and self._rests(run.job.name, now)
        ]
        has = {run.job.name: len(run.workers) for run in running}
        room = sum(cpu for cpu, _ in free.values())
        room += sum((has[job.name] - job.least) * job.worker[0] for job in may)
        new = self._shared(may, waiting, room)
        grows = {job: new[job.name] for job in may if self._pays(job, has[job.name], new[job.name])}
        starts = {job: new[job.name] for job in waiting if job.name in new}
        need = sum((workers - has[job.name]) * job.worker[0] for job, workers in grows.items())
        need += sum(
            job.servers * job.server[0] + workers * job.worker[0] for job, workers in starts.items()
        )
        left, actions = dict(free), list[Action]()
        by_name = {run.job.name: run for run in running}
        for job in sorted(may, key=lambda job: -self._rest(job, job.asked)):
            short = need - sum(cpu for cpu, _ in left.values())
            gives = min(has[job.name] - new[job.name], math.ceil(short / job.worker[0]))
            if gives > 0:
                last = range(has[job.name] - gives, has[job.name])
                for index in last:
                    node = by_name[job.name].workers[index]
                    left[node] = plus(left[node], job.worker)
                actions.append(Shrink(job.name, frozenset(last)))
        for job, workers in starts.items():
            places = schedule(left, [job.server] * job.servers, [job.worker] * workers)
            if len(places.servers) == job.servers and len(places.workers) >= job.least:
                actions.append(Start(job, places.servers, places.workers))
                for pod, nodes in ((job.server, places.servers), (job.worker, places.workers)):
                    for node in nodes:
                        left[node] = plus(left[node], pod, times=-1)
        for job, workers in grows.items():
            nodes = schedule(left, [], [job.worker] * (workers - has[job.name])).workers
            for node in nodes:
                left[node] = plus(left[node], job.worker, times=-1)
            actions += [Grow(job.name, nodes)] if nodes else []
        self._resized |= {_uid(action): now for action in actions}
        return actions

    def _rests(self, name: str, now: float) -> bool:
        return now - self._resized.get(name, -math.inf) >= REST

    def _shared(self, may: Sequence[Job], waiting: Sequence[Job], room: int) -> dict[str, int]:
        """Return how many workers jobs are to have; a waiting job that is left out waits on."""
        new = {job.name: job.least for job in may}
        able = list(may)
        for job in self._in_line(waiting):
            needs = job.servers * job.server[0] + job.least * job.worker[0]
            if needs <= room:
                new[job.name] = job.least
                room -= needs
                able.append(job)
        most = {job.name: job.most for job in may}
        while able:
            job = min(able, key=lambda job: self._key(job, new[job.name]))
            if new[job.name] < most.get(job.name, job.asked) and job.worker[0] <= room:
                new[job.name] += 1
                room -= job.worker[0]
            else:
                able.remove(job)
        return new

    def _in_line(self, waiting: Sequence[Job]) -> Sequence[Job]:
        return waiting

    def _key(self, job: Job, workers: int) -> tuple[float, ...]:
        """Return what is smallest for the job that gets the next worker."""
        return workers / job.asked, job.submitted

    def _rest(self, job: Job, workers: int) -> float:
        """Return the seconds that a job still trains with so many workers."""
        training = self._jobs[job.name].training
        training.advance()
        return (training.spec.steps - training.done) * training.spec.pace.seconds(workers)

    def _pays(self, job: Job, before: int, after: int) -> bool:
        """Return whether a growth saves more than it costs."""
        spec = self._jobs[job.name].spec
        cost = 0.0 if spec.style is Style.SERVERS else spec.starts + spec.meets
        return after > before and self._rest(job, before) - self._rest(job, after) > cost


class Shortest(EqualShare):
    """The job with the least to do gets all that it asked for first, and what is left likewise."""

    def _in_line(self, waiting: Sequence[Job]) -> Sequence[Job]:
        return sorted(waiting, key=lambda job: self._rest(job, job.asked))

    def _key(self, job: Job, workers: int) -> tuple[float, ...]:
        return workers >= job.asked, self._rest(job, job.asked), job.submitted


def _uid(action: Action) -> str:
    return action.job.name if isinstance(action, Start) else action.name
