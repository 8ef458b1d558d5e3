"""DRAGON as its authors published it, faults included: who starts, shrinks and grows.

Source: Lin et al., DRAGON, CLOSER 2019, and its controller of 2020 (NTHU-LSALAB/DRAGON). Each pass
sees what is free now and does three things. If the head of the queue has waited for 30 s, workers
of running jobs are taken until it would fit. Then the first job in the queue is admitted that has
room for all of its servers and its fewest workers. And if a minute has passed without either, all
running jobs grow into what is free.

Its faults are kept, since they are what is compared:
- The guard makes room for the fewest workers of the head alone and forgets its servers.
- Victims are the jobs that run longest, whatever they have; none is asked for a checkpoint.
- What is taken is not free before a later pass, so younger jobs may be admitted in between.
- A pass admits one job, and if the guard cannot help the head, none.
- While a head starves nothing grows, though it may fit nowhere.
- Growth knows neither speed nor price. One job after the other gets all that it may have, and more:
  what it got on one node is forgotten on the next.

The published code also knows pods with a high priority and fractions of GPUs, which do not occur
here. Where it iterates over a map, here is the order of the nodes, and on each of them a job's last
worker comes first: the operator removes the last one, so any other would cost two their progress.

It never takes parameter servers (`servers`), nor the first worker, which is the master of a job
without another. Amounts are CPU in millicores and memory in bytes; times are in seconds of any
clock.

The search for nodes puts all of a job on one node if possible, else it fills first the node that
holds most of the job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Amounts = tuple[int, int]
"""CPU in millicores and memory in bytes."""
Free = dict[str, Amounts]
"""What each node could still hold; the nodes are tried in their order."""
WAIT_SECONDS = 30.0
GROWTH_SECONDS = 60.0
SYNC_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes of the servers and workers of a job; fewer of either if there is no more room."""

    servers: tuple[str, ...]
    workers: tuple[str, ...]


def schedule(free: Free, servers: Sequence[Amounts], workers: Sequence[Amounts]) -> Places:
    """Return where the pods of a job would go, the servers first."""
    pods = [*servers, *workers]
    counts = {node: fitting(amounts, pods) for node, amounts in free.items()}
    for node, count in counts.items():
        if count == len(pods):
            return Places((node,) * len(servers), (node,) * len(workers))

    def most(node: str) -> int:
        """Return how many of the servers or of the workers a node holds, whichever is more."""
        return max(min(counts[node], len(servers)), counts[node] - len(servers))

    best = max(free, key=most)  # the first of equals
    found: list[str] = []
    for node in [best, *(node for node in free if node != best)]:
        found += [node] * fitting(free[node], pods[len(found) :])
    return Places(tuple(found[: len(servers)]), tuple(found[len(servers) :]))


def plus(amounts: Amounts, more: Amounts, *, times: int = 1) -> Amounts:
    """Return a sum of amounts; `times`: how often `more` is added."""
    return amounts[0] + times * more[0], amounts[1] + times * more[1]


def holds(amounts: Amounts, pod: Amounts) -> bool:
    """Return whether a pod fits."""
    return amounts[0] >= pod[0] and amounts[1] >= pod[1]


def fitting(amounts: Amounts, pods: Sequence[Amounts]) -> int:
    """Return how many of some pods fit, one after the other."""
    for count, pod in enumerate(pods):
        if not holds(amounts, pod):
            return count
        amounts = plus(amounts, pod, times=-1)
    return len(pods)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was submitted: its servers, and the workers it asks for and may have."""

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
    """Start a job with these pods: a node for each."""

    job: Job
    servers: tuple[str, ...]
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shrink:
    """Take these workers of a job, by index."""

    name: str
    victims: frozenset[int]


@dataclass(frozen=True, slots=True)
class Grow:
    """Give a job one more worker on each of these nodes."""

    name: str
    nodes: tuple[str, ...]


Action = Start | Shrink | Grow


@dataclass(slots=True)
class Dragon:
    """The controller. `began`: when it did, which counts as its last action."""

    began: float
    _acted: float = field(init=False)

    def __post_init__(self) -> None:
        self._acted = self.began

    def run(
        self, free: Free, *, waiting: Sequence[Job], running: Sequence[Running], now: float
    ) -> list[Action]:
        """Make one pass. Jobs that wait are in order of arrival, running jobs in order of start.

        `free`: what each node could still hold by the requests of all pods that have not ended.
        """
        actions: list[Action] = []
        helped = True
        if waiting and now - waiting[0].submitted >= WAIT_SECONDS:
            shrinks = _shrinks(free, waiting[0], running)
            helped = shrinks is not None
            actions += shrinks or []
            self._acted = now
        if helped and (start := _start(free, waiting)):
            actions.append(start)
            self._acted = now
        if now - self._acted >= GROWTH_SECONDS:
            actions += _growths(free, running)
            self._acted = now
        return actions


class Passes:
    """When a pass is due: whenever a job or pod has changed, and each 15 s at the latest."""

    def __init__(self) -> None:
        self._ran = float("-inf")
        self._seen: object = None

    def due(self, seen: object, *, now: float) -> bool:
        """Return whether a pass is due, which then counts as made. `seen`: what all look like."""
        if seen == self._seen and now - self._ran < SYNC_SECONDS:
            return False
        self._ran, self._seen = now, seen
        return True

    @property
    def next(self) -> float:
        """When a pass is due if nothing changes."""
        return self._ran + SYNC_SECONDS


def _shrinks(free: Free, head: Job, running: Sequence[Running]) -> list[Shrink] | None:
    """Return what makes room for the fewest workers of a job; None: nothing does."""
    left, taken = dict(free), dict[str, set[int]]()
    victims = ((job, index) for job in running for index in _victims(job))
    while len(schedule(left, [], [head.worker] * head.least).workers) < head.least:
        victim, index = next(victims, (None, 0))
        if victim is None:
            return None
        node = victim.workers[index]
        left[node] = plus(left[node], victim.job.worker)
        taken.setdefault(victim.job.name, set()).add(index)
    return [Shrink(name, frozenset(some)) for name, some in taken.items()]


def _victims(running: Running) -> Sequence[int]:
    """Return the workers of a job that may be taken, those beside its server last."""
    with_server = next(iter(running.servers.values()), None)

    def rank(index: int) -> tuple[bool, str, int]:
        node = running.workers[index]
        return node == with_server, node, -index

    order = sorted((index for index in running.workers if index > 0), key=rank)
    return order[: max(0, len(running.workers) - running.job.least)]


def _start(free: Free, waiting: Sequence[Job]) -> Start | None:
    """Return the first job that has room."""
    for job in waiting:
        places = schedule(free, [job.server] * job.servers, [job.worker] * job.asked)
        if len(places.servers) == job.servers and len(places.workers) >= job.least:
            return Start(job, places.servers, places.workers)
    return None


def _growths(free: Free, running: Sequence[Running]) -> list[Grow]:
    """Return how running jobs fill the nodes, one job after the other."""
    left, given = dict(free), dict[str, list[str]]()
    jobs = iter(running)
    growing = next(jobs, None)
    for node in free:
        while growing is not None:
            wanted = [growing.job.worker] * max(0, growing.job.most - len(growing.workers))
            count = fitting(left[node], wanted)
            left[node] = plus(left[node], growing.job.worker, times=-count)
            given.setdefault(growing.job.name, []).extend([node] * count)
            if count < len(wanted):
                break  # the node is full; the job goes on at the next one, and counts anew
            growing = next(jobs, None)
    return [Grow(name, tuple(nodes)) for name, nodes in given.items() if nodes]
