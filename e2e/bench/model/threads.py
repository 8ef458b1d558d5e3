"""Jobs of one thread on four nodes of one CPU, and what FlowCon and SpeCon do with them.

Both rules see the losses that the jobs print. `Mapped` binds each job to a node that is drawn, as
SpeCon's authors pinned the jobs of all their runs; FlowCon's second version chooses the node.
Sources: as `e2e/bench/companion/flowcon.py`; Mao et al., SpeCon, arXiv 2010.11307. Where a job of
SpeCon's goes, and how FlowCon 2 compares nodes, is not published: both are reconstructed.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from e2e.bench.companion import flowcon
from kfext.core.patches.json_patch import operations
from kfext.model.log_line import LogLine
from kfext.sim.cluster import Cluster, World
from kfext.sim.objects import LiveJob, LivePod
from kfext.sim.worlds import arriving, lognormal, thread

_NODES = tuple(f"node-{number}" for number in range(4))
_WHOLE = 1000
"""The millicores of a node."""
_CV = 0.8
"""The deviation of the lengths as a part of their mean."""
_MEAN, _SHORTEST, _LONGEST = 100.0, 15.0, 800.0
"""Core-seconds of a job."""
_LOOK = 10.0
"""Seconds between two looks of SpeCon's at progress, and between two turns here."""
_TICK = 30.0
"""Seconds between two moves of SpeCon's."""
_ALPHA = 0.1
"""SpeCon's: a job is slow if it progresses less than this part of its fastest interval."""
_INTERVAL = 30.0
"""FlowCon's, in seconds."""


def threads(seed: int, *, jobs: int, within: float) -> World:
    """Return jobs that come within so many seconds; their losses converge early or late."""
    random = Random(seed)
    specs = []
    for number in range(jobs):
        drawn = lognormal(random, _MEAN, cv=_CV)
        spec = thread(f"job-{number}", min(max(drawn, _SHORTEST), _LONGEST))
        specs.append(replace(spec, halves=spec.steps * random.uniform(0.05, 0.4)))
    times = sorted(random.uniform(0, within) for _ in specs)
    return World(dict.fromkeys(_NODES, _WHOLE), tuple(map(arriving, specs, times)))


class Mapped:
    """Plain Kubernetes with jobs on nodes that are drawn; a `Scheduler` of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.homes: dict[str, str] = {}
        self._drawn = Random(cluster.luck)
        cluster.api.admit = lambda raw: raw
        cluster.kubelets.choose = self._choose

    def next_turn(self) -> float:
        """Return the second of the next turn."""
        return _LOOK * (math.floor(self.cluster.clock.now / _LOOK) + 1)

    def turn(self) -> None:
        """Act; called in each second in which something happened."""

    def place(self, _live: LivePod) -> str:
        """Return the node for a new job."""
        return self._drawn.choice(_NODES)

    def here(self, node: str) -> list[LiveJob]:
        """Return the jobs that train on a node."""
        return [job for job in self.running() if self.homes[job.uid] == node]

    def running(self) -> list[LiveJob]:
        """Return the jobs that train."""
        jobs = self.cluster.api.jobs.values()
        return [job for job in jobs if any(pod.runs for pod in job.pods.values())]

    def _choose(self, live: LivePod, fits: Sequence[str]) -> str | None:
        uid = live.job.uid
        if uid not in self.homes:
            self.homes[uid] = self.place(live)
        return self.homes[uid] if self.homes[uid] in fits else None


class FlowCon(Mapped):
    """Caps jobs that have converged, on each node for itself.

    With the published alpha, a change of the loss a second, few jobs grow for two intervals.
    """

    def __init__(self, cluster: Cluster, *, alpha: float = flowcon.ALPHA) -> None:
        super().__init__(cluster)
        self._algorithms = {node: flowcon.Algorithm(alpha) for node in _NODES}
        self._timers = {node: flowcon.Timer(_INTERVAL, now=0.0) for node in _NODES}
        self._used: dict[str, deque[tuple[float, float]]] = {}
        self.caps: dict[str, float] = {}

    def turn(self) -> None:
        """Run the algorithm on each node where a round is due."""
        now = self.cluster.clock.now
        for job in self.running():
            job.training.advance()
            used = self._used.setdefault(job.uid, deque())
            used.append((now, job.training.busy))
            while now - used[0][0] > _INTERVAL:
                used.popleft()
        for node in self.cluster.world.nodes:
            found = {job.uid: job for job in self.here(node)}
            timer, algorithm = self._timers[node], self._algorithms[node]
            if not found or not timer.due(frozenset(found), now=now):
                continue
            self._cap(found, algorithm.run({uid: self._growth(found[uid]) for uid in found}))
            timer.ran(frozenset(found), now=now, all_completing=algorithm.all_completing)

    def _growth(self, job: LiveJob) -> float:
        samples = self._used[job.uid]
        (began, before), (until, after) = samples[0], samples[-1]
        share = (after - before) / (until - began) if until > began else None
        change = flowcon.progress(
            [(line.at, _loss(line)) for line in job.training.lines],
            now=self.cluster.clock.wall,
            interval=_INTERVAL,
        )
        return flowcon.growth(change, share)

    def _cap(self, found: Mapping[str, LiveJob], shares: Mapping[str, float]) -> None:
        for uid, share in shares.items():
            if self.caps.get(uid, 1.0) == min(1.0, share):
                continue
            self.caps[uid] = min(1.0, share)
            (pod,) = found[uid].pods.values()
            limit = {"cpu": f"{max(1, round(self.caps[uid] * _WHOLE))}m"}
            container = {"name": found[uid].job.kind.container, "resources": {"limits": limit}}
            self.cluster.api.resize_pod(pod.pod, {"spec": {"containers": [container]}})


class FlowCon2(FlowCon):
    """Caps in the same way, and sends a new job where most CPU is left beside growing jobs."""

    def place(self, _live: LivePod) -> str:
        """Return the node with the smallest sum of the caps of its jobs, then with fewest jobs."""
        return min(self.cluster.world.nodes, key=self._contention)

    def _contention(self, node: str) -> tuple[float, int, str]:
        jobs = [uid for uid, home in self.homes.items() if home == node and self._trains(uid)]
        return sum(self.caps.get(uid, 1.0) for uid in jobs), len(jobs), node

    def _trains(self, uid: str) -> bool:
        return not self.cluster.api.jobs[uid].job.finished


@dataclass(slots=True)
class _Watched:
    """A job as SpeCon sees it; `below`: for how many intervals in a row it progressed slowly."""

    loss: float | None = None
    fastest: float = 0.0
    below: int = 0
    moved: bool = False
    seen: float = -math.inf


class SpeCon(Mapped):
    """Moves slow jobs, once each, off the node with most progressing jobs; one move a tick."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._watched: dict[str, _Watched] = {}
        self._ticked = 0.0
        self._stopped: set[str] = set()

    def turn(self) -> None:
        """Look at the progress of all jobs; move a job if it is time to."""
        now = self.cluster.clock.now
        for uid in [uid for uid in self._stopped if not self.cluster.api.jobs[uid].pods]:
            self._stopped.discard(uid)
            self._suspend(uid, suspended=False)
        for job in self.running():
            watched = self._watched.setdefault(job.uid, _Watched())
            if now - watched.seen >= _LOOK:
                watched.seen = now
                self._judge(watched, job)
        if now - self._ticked >= _TICK:
            self._ticked = now
            self._move()

    def _judge(self, watched: _Watched, job: LiveJob) -> None:
        job.training.advance()
        if not job.training.lines:
            return
        loss = _loss(job.training.lines[-1])
        if watched.loss is not None:
            progress = abs(watched.loss - loss) / _LOOK
            watched.fastest = max(watched.fastest, progress)
            slow = progress < _ALPHA * watched.fastest
            watched.below = watched.below + 1 if slow else 0
        watched.loss = loss

    def _move(self) -> None:
        load = dict.fromkeys(self.cluster.world.nodes, 0)
        for job in self.running():
            load[self.homes[job.uid]] += not self._watched[job.uid].below
        slow = [
            job.uid
            for job in self.running()
            if self._watched[job.uid].below and not self._watched[job.uid].moved
        ]
        if not slow:
            return
        uid = max(slow, key=lambda uid: load[self.homes[uid]])
        source, to = self.homes[uid], min(load, key=lambda node: (load[node], node))
        if load[to] + 1 < load[source]:
            self._watched[uid].moved, self.homes[uid] = True, to
            self.cluster.api.jobs[uid].training.save()
            self._stopped.add(uid)
            self._suspend(uid, suspended=True)

    def _suspend(self, uid: str, *, suspended: bool) -> None:
        live = self.cluster.api.jobs[uid]
        changes = {"spec": live.job.kind.suspend(suspended)}
        self.cluster.api.patch_job(uid, operations(live.raw, changes))


def _loss(line: LogLine) -> float:
    return float(line.text.rpartition("=")[2])
