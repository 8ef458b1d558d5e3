"""The contest of jobs for the CPU of a node: who is favoured, and what each job requests.

CFS shares a full CPU by weight, and the weight of a pod follows its request. The prioritised job's
request is raised into what is free on its node. Where too little is free, the requests of other
jobs of its namespace give way, and their sum stays. All CPU of a node is used whatever the weights.

Source: Friedman and Henderson, the Fair Sojourn Protocol, SIGMETRICS 2003: the job that would end
first under equal shares goes first, and then no job ends later than under equal shares.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kfext.core.queue.quota import NO_RAISE
from kfext.state.running.signals import JobSignal, NodeSignal, PodSignal, Sharer, Signals

SPARE = 0.1
"""The part of what is free on a node, or in a quota, that no raise takes."""
LEAST_REQUEST = 10
"""The lowest request, in millicores, that a job keeps where it gives way; its weight is 1 or 2.
With more pods there, it keeps one millicore for each."""
_KNOWN_SECONDS = 300.0
"""A job with a raised request has this long to show what is left to a new controller."""
_ENOUGH = 2
"""A node is full if the boosted job would get less than this multiple of the others' weight."""
_TINY = 1e-6
"""Rounding errors up to this size are ignored."""
_CLEARLY = 0.1
"""A job takes the turn of the prioritised job if it ends earlier by over this part of its time."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A node with the jobs on it, in order of uid.

    `headroom`: by namespace with a quota, how much more its pods may request on this node.
    """

    node: str
    of: NodeSignal
    jobs: Sequence[JobSignal]
    headroom: Mapping[str, int]

    @property
    def is_open(self) -> bool:
        """Whether requests may change: not while a pod waits for the CPU of a raise.

        A new controller first waits until it knows the job with a raised request.
        """
        if self.of.awaited or not all(job.young for job in self.unknown):
            return False
        return self.of.crowded or any(self.extra(job) for job in self.jobs)

    @property
    def unknown(self) -> list[JobSignal]:
        """The jobs with a raised request that may yet show how much of their work is left."""
        raised = (job for job in self.jobs if self.extra(job) > 0)
        return [
            job
            for job in raised
            if job.left is not None and not job.known and job.followed < _KNOWN_SECONDS
        ]

    def requested(self, job: JobSignal) -> int:
        """Return what the pods of a job here request as their user wrote it."""
        return sum(pod.requested.request for pod in job.on(self.node))

    def extra(self, job: JobSignal) -> int:
        """Return what counts for the pods of a job here beyond what their user wrote."""
        return sum(pod.extra for pod in job.on(self.node))

    def most(self, job: JobSignal) -> int:
        """Return the most that the pods of a job here may request."""
        return sum(self._most(pod) for pod in job.on(self.node))

    def pool(self, namespace: str) -> int:
        """Return what all raises for jobs of a namespace may take."""
        return max(0, self._room(namespace))

    def _room(self, namespace: str) -> int:
        """Return the pool; below 0: as much is requested beyond the node or the quota."""
        room = min(self.of.free, int((1 - SPARE) * self.of.free))
        if namespace in self.headroom:
            extras = [self.extra(job) for job in self.jobs if job.namespace == namespace]
            left = self.headroom[namespace]
            room = min(room, 0 if left == NO_RAISE else left + sum(extras))
        return room

    def allowance(self, namespace: str) -> int:
        """Return how much the jobs of a namespace may grow now, by what kubelets have allocated.

        What jobs of the namespace gave up counts for it, and for no other namespace.
        """
        extras = (
            self.extra(job) if job.namespace == namespace else max(0, self.extra(job))
            for job in self.jobs
        )
        return self._room(namespace) - sum(extras)

    # --- what each job requests -------------------------------------------------------------------

    def requests(
        self, prioritised: JobSignal | None, acting: Collection[JobSignal]
    ) -> dict[str, int]:
        """Return by uid what each job here should request; `acting`: the jobs that may change."""
        requested = {job.uid: self.requested(job) for job in self.jobs}
        if len(self.jobs) < 2:
            return requested
        if prioritised is None or self._begins(prioritised):
            return requested
        return requested | self._for(prioritised, requested, acting)

    def _begins(self, first: JobSignal) -> bool:
        """Return whether all have the share that their users wrote, and none but one is known.

        To raise the prioritised job and all newcomers to equal shares would change little.
        """
        others = [job for job in self.jobs if job is not first]
        return all(job.young and not job.known for job in others) and not any(
            self.extra(job) for job in self.jobs
        )

    def _for(
        self, first: JobSignal, requested: Mapping[str, int], acting: Collection[JobSignal]
    ) -> dict[str, int]:
        """Return the requests that favour a job."""
        pool, total = self.pool(first.namespace), sum(requested.values())
        wanted = self._of_newcomers(requested, acting, pool=pool)
        pool -= sum(wanted.values()) - sum(requested[uid] for uid in wanted)
        donors = [
            job
            for job in acting
            if job is not first and job.namespace == first.namespace and job.uid not in wanted
        ]
        least = {
            job.uid: min(requested[job.uid], max(LEAST_REQUEST, len(job.on(self.node))))
            for job in donors
        }
        full = requested[first.uid] + pool < _ENOUGH * (total - requested[first.uid])
        reclaimed = sum(requested[uid] - least[uid] for uid in least) if full else 0
        grows = max(0, min(pool + reclaimed, self.most(first) - requested[first.uid]))
        rest = sum(requested[uid] for uid in least) - max(0, grows - pool)
        parts = [Part(requested[uid], least[uid], requested[uid]) for uid in least]
        wanted |= dict(zip(least, share_out(rest, parts), strict=True))
        return wanted | {first.uid: requested[first.uid] + grows}

    def _of_newcomers(
        self, requested: Mapping[str, int], acting: Collection[JobSignal], *, pool: int
    ) -> dict[str, int]:
        """Return the requests that keep an equal share for jobs that have just begun."""
        new_jobs = [job for job in acting if job.young and not job.known]
        equal = (sum(requested.values()) + pool) // len(self.jobs)
        wanted: dict[str, int] = {}
        for job in new_jobs:
            raise_ = min(equal, self.most(job)) - requested[job.uid]
            given = max(0, min(raise_, pool, self.pool(job.namespace)))
            wanted[job.uid] = requested[job.uid] + given
            pool -= given
        return wanted

    def split(self, job: JobSignal, total: int) -> dict[str, int]:
        """Return by uid the requests of the pods of a job here, in proportion to the user's."""
        pods = job.on(self.node)
        low = total < self.requested(job)
        parts = [
            Part(
                weight=float(max(1, pod.requested.request)),
                # A pod that requests nothing could become BestEffort.
                least=min(1 if low else self._most(pod), pod.requested.request),
                most=pod.requested.request if low else self._most(pod),
            )
            for pod in pods
        ]
        shares = share_out(total, parts)
        return {pod.uid: share for pod, share in zip(pods, shares, strict=True)}

    def _most(self, pod: PodSignal) -> int:
        """Return the highest request of a pod: at its limit its QoS class could change.

        A limit that another pod of the job lent does not count: it has to go back.
        """
        limits = [limit for limit in (pod.limit, pod.requested.limit) if limit is not None]
        most = min(limits) - 1 if limits else self.of.allocatable
        return max(most, pod.requested.request)


def contests(signals: Signals) -> dict[str, Contest]:
    """Return the contests by node, in the order of the node names."""
    return {
        node: Contest(
            node,
            of,
            sorted(signals.on(node), key=lambda job: job.uid),
            signals.headroom,
        )
        for node, of in sorted(signals.nodes.items())
    }


def all_prioritised(
    of: Mapping[str, Contest], candidates: Iterable[JobSignal]
) -> dict[str, JobSignal]:
    """Return the prioritised job of each node that has one.

    The job that would end first under equal shares goes first. A job on several nodes ends with its
    last pod, and is favoured on all nodes where others contend with it, or on none. No job gives
    way to a paused job: its raise was refused.
    """
    ends = {
        node: fair_ends(
            [*(job.sharer(node) for job in contest.jobs), *contest.of.gone],
            cores=max(1, contest.of.allocatable - contest.of.others) / 1000,
        )
        for node, contest in of.items()
    }

    def end(job: JobSignal) -> tuple[float, str]:
        last = max(ends[node][job.uid] for node in job.nodes)
        favoured = all(_leads(of[node], job) for node in job.nodes)
        return (last - _CLEARLY * (last - job.began) if favoured else last, job.uid)

    chosen: dict[str, JobSignal] = {}
    for job in sorted((job for job in candidates if job.known and not job.paused), key=end):
        here = [of[node] for node in job.nodes if len(of[node].jobs) > 1]
        if all(contest.is_open and contest.node not in chosen for contest in here):
            chosen |= {contest.node: job for contest in here}
    return chosen


def _leads(of: Contest, job: JobSignal) -> bool:
    """Return whether a job has the largest raise of a node."""
    return 0 < of.extra(job) == max(of.extra(other) for other in of.jobs)


def fair_ends(sharers: Iterable[Sharer], *, cores: float) -> dict[str, float]:
    """Return by uid when each job would end, in seconds since the epoch; infinity if unknown."""
    coming = sorted(sharers, key=lambda sharer: (sharer.came, sharer.uid), reverse=True)
    ends = dict.fromkeys((sharer.uid for sharer in coming), math.inf)
    left: dict[Sharer, float] = {}
    # Times count from the first job on: epoch seconds are too large to add fractions exactly.
    origin, now = coming[-1].came if coming else 0.0, 0.0
    while coming or any(map(math.isfinite, left.values())):
        speeds = _equal_shares(left, cores=cores)
        due = {
            sharer: now + left[sharer] / speed if speed > 0 else math.inf
            for sharer, speed in speeds.items()
        }
        then = min(*due.values(), coming[-1].came - origin if coming else math.inf, math.inf)
        if math.isinf(then):
            break
        for sharer, speed in speeds.items():
            left[sharer] -= speed * (then - now)
        now = then
        # What is left when a job ends is a rounding error, and as large as its work may be.
        for sharer in [job for job, rest in left.items() if rest <= _TINY or due[job] <= now]:
            ends[sharer.uid] = origin + now
            del left[sharer]
        while coming and coming[-1].came - origin <= now:
            sharer = coming.pop()
            left[sharer] = max(sharer.work, 2 * _TINY)
    return ends


def _equal_shares(left: Mapping[Sharer, float], *, cores: float) -> dict[Sharer, float]:
    """Return the cores of each job: equal, but no more than it can use."""
    shares: dict[Sharer, float] = {}
    rest = cores
    by_most: Sequence[Sharer] = sorted(left, key=lambda sharer: sharer.most)
    for number, sharer in enumerate(by_most):
        shares[sharer] = min(sharer.most, rest / (len(by_most) - number))
        rest -= shares[sharer]
    return shares


@dataclass(frozen=True, slots=True)
class Part:
    """A participant: its weight, and the least and the most that it may get."""

    weight: float
    least: int
    most: int


def share_out(total: int, parts: Sequence[Part]) -> list[int]:
    """Return the amount for each part: in proportion to the weights, within the bounds.

    The sum is the total if the bounds allow it. Whole millicores go to the largest remainders, in
    the order of the parts if remainders are equal. Without weights all parts are equal.
    """
    rest = float(
        min(max(total, sum(part.least for part in parts)), sum(part.most for part in parts))
    )
    given = [0.0] * len(parts)
    free = list(range(len(parts)))
    while free:
        weights = sum(parts[index].weight for index in free)
        for index in free:
            share = parts[index].weight / weights if weights > 0 else 1 / len(free)
            given[index] = rest * share
        low = [index for index in free if given[index] < parts[index].least]
        high = [index for index in free if given[index] > parts[index].most]
        if not low and not high:
            break
        lack = sum(parts[index].least - given[index] for index in low)
        excess = sum(given[index] - parts[index].most for index in high)
        # The side further beyond its bounds stays at its bounds whatever the other side does.
        fixed = low if lack >= excess else high
        for index in fixed:
            given[index] = parts[index].least if fixed is low else parts[index].most
            rest -= given[index]
        free = [index for index in free if index not in fixed]
    return _whole(given)


def _whole(given: Sequence[float]) -> list[int]:
    """Round the amounts and keep their sum, which is a whole number."""
    rounded = [int(amount + _TINY) for amount in given]
    missing = round(sum(given)) - sum(rounded)
    nearest = sorted(range(len(given)), key=lambda index: rounded[index] - given[index])
    for index in nearest[:missing]:
        rounded[index] += 1
    return rounded
