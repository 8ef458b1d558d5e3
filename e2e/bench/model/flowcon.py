"""FlowCon as its authors published it, faults included: divides a node's CPU between its jobs.

Source: Zheng et al., FlowCon, ICPP 2019, and its code of March 2019 (yingmao/FlowCon2018).

A container's loss is divided by the largest loss that it ever printed. Its progress P is the
absolute difference of the means of the last two intervals, divided by the interval; its growth
efficiency G is P / R, where R is the fraction of the machine's CPU that it used meanwhile. The
limit of a growing container is G / sum of all G of the machine; the limit of a container that has
not grown for two intervals is the same, but at least 1/(n+1), for n containers.

Its faults are kept, since the comparison is with the published scheduler: `alpha` bounds the
progress per second, so its meaning depends on the interval; a rising loss counts as growth; one
early peak makes all later progress small; R has no floor, so a starved container seems to grow; the
end of all growth is noticed a round late; and after a back-off the interval stays long until a
container starts or ends. One thing differs: the published setter rounds limits down to whole cores.
On its authors' machines that is a few percent; on a node of 1.4 cores every limit would be 0, which
means "no change" to Docker, so that nothing would be compared. How FlowCon's second version
compares nodes is not published, so it is reconstructed.

Times are in seconds of any clock.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from e2e.bench.model.mapped import Mapped, loss_of
from kfext.sim.cluster import Cluster
from kfext.sim.objects import LiveJob, LivePod

ALPHA = 0.03
LISTEN_SECONDS = 10.0
_INTERVAL = 30.0
_NODE_MILLICORES = 1000
"""The millicores of a node."""


def progress(losses: Sequence[tuple[float, float]], *, now: float, interval: float) -> float:
    """Return P of a container. `losses`: times and losses; without losses, P is 0."""
    largest = max((loss for _, loss in losses), default=0.0)
    if not largest:
        return 0.0
    last = [loss / largest for at, loss in losses if at >= now - interval]
    before = [loss / largest for at, loss in losses if now - 2 * interval <= at <= now - interval]
    if not last or not before:
        return 0.0
    return abs(fmean(last) - fmean(before)) / interval


def growth(progressed: float, usage: float | None) -> float:
    """Return G for a progress P and a share R of the machine; 0 if R was not measured."""
    return progressed / usage if usage else 0.0


@dataclass(slots=True)
class _Container:
    """Whether a container is on the watching or the completing list; a new one is on neither."""

    watching: bool = False
    completing: bool = False

    def update(self, grows: bool) -> None:
        if grows:
            self.watching = self.completing = False
        elif not self.completing:
            self.watching, self.completing = not self.watching, self.watching


class Algorithm:
    """The lists of containers, and the limits that follow from the lists in each round."""

    def __init__(self, alpha: float = ALPHA) -> None:
        self._alpha = alpha
        self._containers: dict[str, _Container] = {}

    def run(self, gains: Mapping[str, float]) -> dict[str, float]:
        """Record G of each container; return the limits to set, as fractions of the machine.

        Other containers keep their limits. The sum may exceed 1: nothing is reserved.
        """
        self._containers = {name: self._containers.get(name, _Container()) for name in gains}
        released = self.all_completing  # as of the previous round
        for name, container in self._containers.items():
            container.update(gains[name] >= self._alpha)
        if released:
            return dict.fromkeys(gains, 1.0)
        total = sum(gains.values())
        if not total:
            return {}
        floor = 1 / (len(gains) + 1)  # 1 / (beta n) with beta = 1 + 1/n
        return {
            name: max(gains[name] / total, floor) if container.completing else gains[name] / total
            for name, container in self._containers.items()
            if not container.watching
        }

    @property
    def all_completing(self) -> bool:
        containers = self._containers.values()
        return bool(containers) and all(container.completing for container in containers)


class Timer:
    """When rounds are due: once per interval, which doubles after a round without growth.

    During the back-off it checks every ten seconds for a new or ended container; then a round is
    due at once, with the initial interval.
    """

    def __init__(self, interval: float, *, now: float) -> None:
        self._base = self._interval = interval
        self._next = now + interval
        self._listen: float | None = None
        self._known: frozenset[str] = frozenset()
        self._woken = False

    def due(self, running: frozenset[str], *, now: float) -> bool:
        if self._listen is not None and now >= self._listen:
            self._listen = now + LISTEN_SECONDS
            self._woken = running != self._known
        return self._woken or now >= self._next

    def record_round(self, running: frozenset[str], *, now: float, all_completing: bool) -> None:
        if self._woken:
            self._woken, self._listen, self._interval = False, None, self._base
        elif all_completing:
            self._interval *= 2
        self._next = now + self._interval
        if all_completing and self._listen is None:
            self._listen, self._known = now + LISTEN_SECONDS, running


class FlowCon(Mapped):
    """Caps jobs that have converged, on each node separately.

    With the published `alpha`, few jobs grow for two intervals.
    """

    def __init__(self, cluster: Cluster, *, alpha: float = ALPHA) -> None:
        super().__init__(cluster)
        self._algorithms = {node: Algorithm(alpha) for node in cluster.world.nodes}
        self._timers = {node: Timer(_INTERVAL, now=0.0) for node in cluster.world.nodes}
        self._used: dict[str, deque[tuple[float, float]]] = {}
        self.caps: dict[str, float] = {}

    def turn(self) -> None:
        now = self.cluster.clock.now
        for job in self.running():
            job.training.advance()
            used = self._used.setdefault(job.uid, deque())
            used.append((now, job.training.busy))
            while now - used[0][0] > _INTERVAL:
                used.popleft()
        for node in self.cluster.world.nodes:
            jobs = {job.uid: job for job in self.jobs_on(node)}
            timer, algorithm = self._timers[node], self._algorithms[node]
            if not jobs or not timer.due(frozenset(jobs), now=now):
                continue
            self._cap(jobs, algorithm.run({uid: self._growth(jobs[uid]) for uid in jobs}))
            timer.record_round(frozenset(jobs), now=now, all_completing=algorithm.all_completing)

    def _growth(self, job: LiveJob) -> float:
        samples = self._used[job.uid]
        (began, before), (until, after) = samples[0], samples[-1]
        fraction = (after - before) / (until - began) if until > began else None
        progressed = progress(
            [(line.at, loss_of(line)) for line in job.training.lines],
            now=self.cluster.clock.wall,
            interval=_INTERVAL,
        )
        return growth(progressed, fraction)

    def _cap(self, jobs: Mapping[str, LiveJob], fractions: Mapping[str, float]) -> None:
        for uid, fraction in fractions.items():
            if self.caps.get(uid, 1.0) == min(1.0, fraction):
                continue
            self.caps[uid] = min(1.0, fraction)
            (pod,) = jobs[uid].pods.values()
            limit = {"cpu": f"{max(1, round(self.caps[uid] * _NODE_MILLICORES))}m"}
            container = {"name": jobs[uid].job.kind.container, "resources": {"limits": limit}}
            self.cluster.api.resize_pod(pod.pod, {"spec": {"containers": [container]}})


class FlowCon2(FlowCon):
    """Also places a new job on the node where the jobs' caps leave most CPU."""

    def place(self, _live: LivePod) -> str:
        """Return the node with the smallest sum of caps of its jobs, then with the fewest jobs."""
        return min(self.cluster.world.nodes, key=self._contention)

    def _contention(self, node: str) -> tuple[float, int, str]:
        jobs = [
            uid for uid, home in self.homes.items() if home == node and self._is_unfinished(uid)
        ]
        return sum(self.caps.get(uid, 1.0) for uid in jobs), len(jobs), node

    def _is_unfinished(self, uid: str) -> bool:
        return not self.cluster.api.jobs[uid].job.finished
