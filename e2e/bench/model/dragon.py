"""DRAGON as its authors published it, faults included: which jobs to start, shrink and grow.

Source: Lin et al., DRAGON, CLOSER 2019, and its controller of 2020 (NTHU-LSALAB/DRAGON). Each pass
reads the free capacity and has three steps. If the head of the queue has waited for 30 s, workers
of running jobs are removed until the head would fit. Then the first job of the queue with room for
all of its servers and its minimum of workers is admitted. If a minute has passed without either,
all running jobs grow into the free capacity.

Its faults are kept, since the comparison is with the published scheduler:
- The first step frees capacity for the minimum of the head's workers, but not for its servers.
- Victims are the jobs that have run longest, whatever their size, without a checkpoint request.
- Removed workers are free only in a later pass, so younger jobs may be admitted in between.
- A pass admits one job, and no job if removals cannot make the head fit.
- While a head starves, nothing grows, even if the head can never fit.
- Growth ignores speed and cost. One job after the other gets its maximum, or more: workers added on
  a node are not counted on the next node.

The published code also has high-priority pods and fractions of GPUs, which do not occur here. Where
it iterates over a map, this code has the order of the nodes, and on each node a job's last worker
first: the operator removes the last, so any other choice would cost two workers their progress. It
never removes parameter servers (`servers`), nor the first worker, which may be the master. Times
are in seconds of any clock.

The search for nodes puts a whole job on one node if possible, else it first fills the node that
fits most of the job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Amounts = tuple[int, int]
"""CPU in millicores and memory in bytes."""
Free = dict[str, Amounts]
"""The free capacity of each node; the nodes are tried in the order of the dict."""
WAIT_SECONDS = 30.0
GROWTH_SECONDS = 60.0
SYNC_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes of the servers and of the workers of a job; pods that do not fit are left out."""

    servers: tuple[str, ...]
    workers: tuple[str, ...]


def schedule(free: Free, servers: Sequence[Amounts], workers: Sequence[Amounts]) -> Places:
    pods = [*servers, *workers]
    counts = {node: fitting(amounts, pods) for node, amounts in free.items()}
    for node, count in counts.items():
        if count == len(pods):
            return Places((node,) * len(servers), (node,) * len(workers))

    def capacity_for(node: str) -> int:
        """Return the number of servers or of workers that fit a node, whichever is larger."""
        return max(min(counts[node], len(servers)), counts[node] - len(servers))

    best = max(free, key=capacity_for)  # the first of equals
    nodes: list[str] = []
    for node in [best, *(node for node in free if node != best)]:
        nodes += [node] * fitting(free[node], pods[len(nodes) :])
    return Places(tuple(nodes[: len(servers)]), tuple(nodes[len(servers) :]))


def plus(amounts: Amounts, more: Amounts, *, times: int = 1) -> Amounts:
    return amounts[0] + times * more[0], amounts[1] + times * more[1]


def holds(amounts: Amounts, pod: Amounts) -> bool:
    return amounts[0] >= pod[0] and amounts[1] >= pod[1]


def fitting(amounts: Amounts, pods: Sequence[Amounts]) -> int:
    for count, pod in enumerate(pods):
        if not holds(amounts, pod):
            return count
        amounts = plus(amounts, pod, times=-1)
    return len(pods)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as submitted. `server`, `worker`: the requests of a pod.

    `asked`: the requested number of workers; `least`, `most`: the allowed numbers.
    """

    name: str
    submitted: float
    servers: int
    server: Amounts
    worker: Amounts
    least: int
    asked: int
    most: int


@dataclass(frozen=True, slots=True)
class Running:
    """A job that was admitted, with the nodes of its pods by index."""

    job: Job
    servers: Mapping[int, str]
    workers: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Start:
    """Start a job with these pods; each has a node."""

    job: Job
    servers: tuple[str, ...]
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shrink:
    """Remove these workers of a job, by index."""

    name: str
    victims: frozenset[int]


@dataclass(frozen=True, slots=True)
class Grow:
    """Add a worker to a job on each of these nodes."""

    name: str
    nodes: tuple[str, ...]


Action = Start | Shrink | Grow


@dataclass(slots=True)
class Dragon:
    """The controller. `began`: the time of its start, which counts as an action."""

    began: float
    _acted: float = field(init=False)

    def __post_init__(self) -> None:
        self._acted = self.began

    def run(
        self, free: Free, *, waiting: Sequence[Job], running: Sequence[Running], now: float
    ) -> list[Action]:
        """Make one pass. Waiting jobs are in order of arrival, running jobs in order of start.

        `free`: the free capacity of each node by the requests of all pods that have not ended.
        """
        actions: list[Action] = []
        head_can_fit = True
        if waiting and now - waiting[0].submitted >= WAIT_SECONDS:
            shrinks = _shrinks(free, waiting[0], running)
            head_can_fit = shrinks is not None
            actions += shrinks or []
            self._acted = now
        if head_can_fit and (start := _start(free, waiting)):
            actions.append(start)
            self._acted = now
        if now - self._acted >= GROWTH_SECONDS:
            actions += _growths(free, running)
            self._acted = now
        return actions


class Passes:
    """The times of passes: whenever a job or pod has changed, and every 15 s at the latest."""

    def __init__(self) -> None:
        self._ran = float("-inf")
        self._seen: object = None

    def due(self, seen: object, *, now: float) -> bool:
        """Return whether a pass is due, and record it. `seen`: the state of the cluster."""
        if seen == self._seen and now - self._ran < SYNC_SECONDS:
            return False
        self._ran, self._seen = now, seen
        return True

    @property
    def next(self) -> float:
        return self._ran + SYNC_SECONDS


def _shrinks(free: Free, head: Job, running: Sequence[Running]) -> list[Shrink] | None:
    """Return the shrinks that let the head's minimum of workers fit; None means that none do."""
    capacity, removed = dict(free), dict[str, set[int]]()
    victims = ((job, index) for job in running for index in _victims(job))
    while len(schedule(capacity, [], [head.worker] * head.least).workers) < head.least:
        victim, index = next(victims, (None, 0))
        if victim is None:
            return None
        node = victim.workers[index]
        capacity[node] = plus(capacity[node], victim.job.worker)
        removed.setdefault(victim.job.name, set()).add(index)
    return [Shrink(name, frozenset(indexes)) for name, indexes in removed.items()]


def _victims(running: Running) -> Sequence[int]:
    """Return the workers of a job that may be removed; workers on its server's node come last."""
    with_server = next(iter(running.servers.values()), None)

    def rank(index: int) -> tuple[bool, str, int]:
        node = running.workers[index]
        return node == with_server, node, -index

    order = sorted((index for index in running.workers if index > 0), key=rank)
    return order[: max(0, len(running.workers) - running.job.least)]


def _start(free: Free, waiting: Sequence[Job]) -> Start | None:
    for job in waiting:
        places = schedule(free, [job.server] * job.servers, [job.worker] * job.asked)
        if len(places.servers) == job.servers and len(places.workers) >= job.least:
            return Start(job, places.servers, places.workers)
    return None


def _growths(free: Free, running: Sequence[Running]) -> list[Grow]:
    """Return the growth of running jobs into the free capacity, one job after the other."""
    capacity, added = dict(free), dict[str, list[str]]()
    jobs = iter(running)
    growing = next(jobs, None)
    for node in free:
        while growing is not None:
            missing_workers = [growing.job.worker] * max(0, growing.job.most - len(growing.workers))
            count = fitting(capacity[node], missing_workers)
            capacity[node] = plus(capacity[node], growing.job.worker, times=-count)
            added.setdefault(growing.job.name, []).extend([node] * count)
            if count < len(missing_workers):
                break  # the node is full; the job continues on the next, with a new count
            growing = next(jobs, None)
    return [Grow(name, tuple(nodes)) for name, nodes in added.items() if nodes]
