"""The contest of jobs for the CPU of a node: the prioritised job, and the request of each job.

CFS shares a full CPU by weight, and the weight of a pod follows its request. The request of the
prioritised job is raised by a boost from the free capacity of its node. If that is not enough, the
requests of other jobs of its namespace are lowered for it, and the sum stays. Weights never leave
CPU of a node idle.

Source: Friedman and Henderson, the Fair Sojourn Protocol, SIGMETRICS 2003: if the job that would
end first under equal shares is served first, no job ends later than under equal shares.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kfext.core.queue.quota import NO_RAISE
from kfext.state.running.signals import JobSignal, NodeSignal, PodSignal, Sharer, Signals

SPARE = 0.1
"""The fraction of the free capacity of a node, or of a quota, that no boost uses."""
MIN_REQUEST = 10
"""The request of a job on a node is never lowered below this, in millicores: a weight of 1 or 2. A
job with more pods there keeps one millicore for each."""
_KNOWN_SECONDS = 300.0
"""A new controller waits this long for the progress of a job with a boost."""
_FULL_FACTOR = 2
"""Other requests are lowered if a boost alone gives less than this multiple of their sum."""
_TINY = 1e-6
"""Rounding errors up to this size are ignored."""
_CLEAR_LEAD = 0.1
"""Another job replaces the prioritised job if it would end earlier by more than this fraction of
the time from the begin of that job to its end."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A node with the jobs on it, ordered by uid.

    `headroom`: the CPU that pods may request here in addition, by namespace with a quota.
    """

    node: str
    signal: NodeSignal
    jobs: Sequence[JobSignal]
    headroom: Mapping[str, int]

    @property
    def is_open(self) -> bool:
        """Whether requests may change here: not while a pod waits for the CPU of a boost.

        A new controller first waits for the progress of a job with a boost, unless it is young.
        """
        if self.signal.awaited or not all(job.young for job in self.unknown):
            return False
        return self.signal.crowded or any(self.extra(job) for job in self.jobs)

    @property
    def unknown(self) -> list[JobSignal]:
        """The jobs with a boost that have yet to show their remaining work, and can show it."""
        boosted = (job for job in self.jobs if self.extra(job) > 0)
        return [
            job
            for job in boosted
            if job.remaining is not None and not job.known and job.followed < _KNOWN_SECONDS
        ]

    def requested(self, job: JobSignal) -> int:
        """Return the user's request for the pods of a job here."""
        return sum(pod.requested.request for pod in job.on(self.node))

    def extra(self, job: JobSignal) -> int:
        """Return the CPU that counts for the pods of a job here beyond the user's request."""
        return sum(pod.extra for pod in job.on(self.node))

    def most(self, job: JobSignal) -> int:
        """Return the highest total request of the pods of a job here."""
        return sum(self._most(pod) for pod in job.on(self.node))

    def pool(self, namespace: str) -> int:
        """Return the CPU that all boosts of jobs of a namespace may have together."""
        return max(0, self._balance(namespace))

    def _balance(self, namespace: str) -> int:
        """Return the pool; if negative, requests exceed the node or the quota by that much."""
        balance = min(self.signal.free, int((1 - SPARE) * self.signal.free))  # all if negative
        if namespace in self.headroom:
            extras = [self.extra(job) for job in self.jobs if job.namespace == namespace]
            headroom = self.headroom[namespace]
            balance = min(balance, 0 if headroom == NO_RAISE else headroom + sum(extras))
        return balance

    def allowance(self, namespace: str) -> int:
        """Return the CPU that jobs of a namespace may add now, by what the kubelet has allocated.

        CPU that jobs have released counts for their own namespace, and for no other.
        """
        extras = (
            self.extra(job) if job.namespace == namespace else max(0, self.extra(job))
            for job in self.jobs
        )
        return self._balance(namespace) - sum(extras)

    # --- the request of each job ------------------------------------------------------------------

    def requests(
        self, prioritised: JobSignal | None, acting: Collection[JobSignal]
    ) -> dict[str, int]:
        """Return the wanted request of each job here, by uid; `acting`: jobs that may change."""
        requested = {job.uid: self.requested(job) for job in self.jobs}
        if len(self.jobs) < 2:
            return requested
        if prioritised is None or self._is_premature(prioritised):
            return requested
        return requested | self._with_boost(prioritised, requested, acting)

    def _is_premature(self, first: JobSignal) -> bool:
        """Return whether no request was changed yet, and only the progress of `first` is known.

        Jobs that have just begun get equal shares anyway, so a boost would change little.
        """
        others = [job for job in self.jobs if job is not first]
        return all(job.young and not job.known for job in others) and not any(
            self.extra(job) for job in self.jobs
        )

    def _with_boost(
        self, first: JobSignal, requested: Mapping[str, int], acting: Collection[JobSignal]
    ) -> dict[str, int]:
        """Return the requests of the changed jobs, with a boost for the prioritised job `first`."""
        pool, total = self.pool(first.namespace), sum(requested.values())
        wanted = self._for_new_jobs(requested, acting, pool=pool)
        pool -= sum(wanted.values()) - sum(requested[uid] for uid in wanted)
        donors = [
            job
            for job in acting
            if job is not first and job.namespace == first.namespace and job.uid not in wanted
        ]
        least = {
            job.uid: min(requested[job.uid], max(MIN_REQUEST, len(job.on(self.node))))
            for job in donors
        }
        full = requested[first.uid] + pool < _FULL_FACTOR * (total - requested[first.uid])
        reclaimed = sum(requested[uid] - least[uid] for uid in least) if full else 0
        grows = max(0, min(pool + reclaimed, self.most(first) - requested[first.uid]))
        shared = sum(requested[uid] for uid in least) - max(0, grows - pool)
        recipients = [Recipient(requested[uid], least[uid], requested[uid]) for uid in least]
        wanted |= dict(zip(least, share_out(shared, recipients), strict=True))
        return wanted | {first.uid: requested[first.uid] + grows}

    def _for_new_jobs(
        self, requested: Mapping[str, int], acting: Collection[JobSignal], *, pool: int
    ) -> dict[str, int]:
        """Return the requests that give each job that has just begun an equal share."""
        new_jobs = [job for job in acting if job.young and not job.known]
        equal = (sum(requested.values()) + pool) // len(self.jobs)
        wanted: dict[str, int] = {}
        for job in new_jobs:
            missing = min(equal, self.most(job)) - requested[job.uid]
            boost = max(0, min(missing, pool, self.pool(job.namespace)))
            wanted[job.uid] = requested[job.uid] + boost
            pool -= boost
        return wanted

    def split(self, job: JobSignal, total: int) -> dict[str, int]:
        """Split a job's total request here in proportion to the user's; return it by pod uid."""
        pods = job.on(self.node)
        low = total < self.requested(job)
        recipients = [
            Recipient(
                weight=float(max(1, pod.requested.request)),
                # A pod that requests nothing could become BestEffort.
                least=min(1 if low else self._most(pod), pod.requested.request),
                most=pod.requested.request if low else self._most(pod),
            )
            for pod in pods
        ]
        shares = share_out(total, recipients)
        return {pod.uid: share for pod, share in zip(pods, shares, strict=True)}

    def _most(self, pod: PodSignal) -> int:
        """Return the highest request of a pod, just below its limit, to keep its QoS class.

        A limit that `shift` has raised counts as the user wrote it, since `shift` may lower it.
        """
        limits = [limit for limit in (pod.limit, pod.requested.limit) if limit is not None]
        most = min(limits) - 1 if limits else self.signal.allocatable
        return max(most, pod.requested.request)


def contests(signals: Signals) -> dict[str, Contest]:
    """Return the contest of each node, ordered by name of the node."""
    return {
        node: Contest(
            node, signal, sorted(signals.on(node), key=lambda job: job.uid), signals.headroom
        )
        for node, signal in sorted(signals.nodes.items())
    }


def prioritised_jobs(
    by_node: Mapping[str, Contest], candidates: Iterable[JobSignal]
) -> dict[str, JobSignal]:
    """Return the prioritised job of each node with such a job, by node.

    The job that would end first under equal shares is chosen first. A job on several nodes ends
    with its last pod, and is prioritised on all nodes that it shares, or on none. A paused job,
    in back-off after a refused boost, is not prioritised.
    """
    ends = {
        node: fair_ends(
            [*(job.sharer(node) for job in contest.jobs), *contest.signal.gone],
            cores=max(1, contest.signal.allocatable - contest.signal.others) / 1000,
        )
        for node, contest in by_node.items()
    }

    def end(job: JobSignal) -> tuple[float, str]:
        last_end = max(ends[node][job.uid] for node in job.nodes)
        leads = all(_leads(by_node[node], job) for node in job.nodes)
        return (last_end - _CLEAR_LEAD * (last_end - job.began) if leads else last_end, job.uid)

    chosen: dict[str, JobSignal] = {}
    for job in sorted((job for job in candidates if job.known and not job.paused), key=end):
        here = [by_node[node] for node in job.nodes if len(by_node[node].jobs) > 1]
        if all(contest.is_open and contest.node not in chosen for contest in here):
            chosen |= {contest.node: job for contest in here}
    return chosen


def _leads(contest: Contest, job: JobSignal) -> bool:
    """Return whether a job has the largest boost on a node."""
    return 0 < contest.extra(job) == max(contest.extra(other) for other in contest.jobs)


def fair_ends(sharers: Iterable[Sharer], *, cores: float) -> dict[str, float]:
    """Return when each job ends, by uid, in epoch seconds, if all share some cores equally."""
    coming = sorted(sharers, key=lambda sharer: (sharer.began, sharer.uid), reverse=True)
    ends = dict.fromkeys((sharer.uid for sharer in coming), math.inf)
    remaining: dict[Sharer, float] = {}
    # Times are relative to the first job: epoch seconds are too large to add fractions exactly.
    origin, now = coming[-1].began if coming else 0.0, 0.0
    while coming or any(map(math.isfinite, remaining.values())):
        speeds = _equal_shares(remaining, cores=cores)
        due = {
            sharer: now + remaining[sharer] / speed if speed > 0 else math.inf
            for sharer, speed in speeds.items()
        }
        then = min(*due.values(), coming[-1].began - origin if coming else math.inf, math.inf)
        if math.isinf(then):
            break
        for sharer, speed in speeds.items():
            remaining[sharer] -= speed * (then - now)
        now = then
        # The remaining work of a job at its end is a rounding error, which grows with the work.
        for sharer in [job for job, work in remaining.items() if work <= _TINY or due[job] <= now]:
            ends[sharer.uid] = origin + now
            del remaining[sharer]
        while coming and coming[-1].began - origin <= now:
            sharer = coming.pop()
            remaining[sharer] = max(sharer.work, 2 * _TINY)
    return ends


def _equal_shares(remaining: Mapping[Sharer, float], *, cores: float) -> dict[Sharer, float]:
    """Return the cores of each job: equal shares, but no more than a job can use."""
    shares: dict[Sharer, float] = {}
    by_most: Sequence[Sharer] = sorted(remaining, key=lambda sharer: sharer.most)
    for number, sharer in enumerate(by_most):
        shares[sharer] = min(sharer.most, cores / (len(by_most) - number))
        cores -= shares[sharer]
    return shares


@dataclass(frozen=True, slots=True)
class Recipient:
    """A recipient in `share_out`: its weight, and the bounds of its amount."""

    weight: float
    least: int
    most: int


def share_out(total: int, recipients: Sequence[Recipient]) -> list[int]:
    """Return the amount for each recipient: in proportion to the weights, within the bounds.

    The sum is the total if the bounds allow it. Rounding adds to the largest remainders first, in
    the order of the recipients if remainders are equal. Without weights all recipients are equal.
    """
    remaining = float(
        min(
            max(total, sum(recipient.least for recipient in recipients)),
            sum(recipient.most for recipient in recipients),
        )
    )
    amounts = [0.0] * len(recipients)
    free = list(range(len(recipients)))
    while free:
        weights = sum(recipients[index].weight for index in free)
        for index in free:
            share = recipients[index].weight / weights if weights > 0 else 1 / len(free)
            amounts[index] = remaining * share
        low = [index for index in free if amounts[index] < recipients[index].least]
        high = [index for index in free if amounts[index] > recipients[index].most]
        if not low and not high:
            break
        lack = sum(recipients[index].least - amounts[index] for index in low)
        excess = sum(amounts[index] - recipients[index].most for index in high)
        # The side that is further out of bounds stays at its bounds whatever the other side gets.
        fixed = low if lack >= excess else high
        for index in fixed:
            amounts[index] = recipients[index].least if fixed is low else recipients[index].most
            remaining -= amounts[index]
        free = [index for index in free if index not in fixed]
    return _rounded(amounts)


def _rounded(amounts: Sequence[float]) -> list[int]:
    """Return the amounts as integers with the same sum, which must be a whole number."""
    rounded = [int(amount + _TINY) for amount in amounts]
    missing = round(sum(amounts)) - sum(rounded)
    nearest = sorted(range(len(amounts)), key=lambda index: rounded[index] - amounts[index])
    for index in nearest[:missing]:
        rounded[index] += 1
    return rounded
