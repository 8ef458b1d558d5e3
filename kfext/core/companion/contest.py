"""A node whose CPU several jobs compete for, while it is decided who may use how much."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from kfext.core.companion.caps import Competitor, caps, floor_of, with_what_is_left
from kfext.core.companion.demand import least_limit, wanted
from kfext.core.companion.share_out import Part, share_out
from kfext.core.companion.signals import JobSignal, PodSignal, Signals, use_of

_FULL = 0.95
"""The share of its allocatable CPU from which on a node counts as full."""
_ONE_CPU = 1000
_CLEARLY = 0.1
"""The part of its work by which a job has to end before another one to take its turn."""
_FILLED = 0.93
"""The share up to which capped jobs take what others leave; below the one above."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A node and the jobs that are decided on there; CPU in millicores.

    `size`: what they share: the allocatable CPU less what all others use.
    `room`: the part of it that may be given to jobs beyond their caps.
    `wants`, `present`: by uid, what a job would use without a cap, and its cap now, if it has one.
    """

    node: str
    size: int
    room: int
    jobs: Sequence[JobSignal]
    wants: Mapping[str, int]
    present: Mapping[str, int | None]

    @property
    def ordered(self) -> bool:
        """Whether all jobs show how far they are, so that it is known which of them end first."""
        return all(job.left is not None for job in self.jobs)

    @property
    def first(self) -> JobSignal | None:
        """The job that ends first, of jobs that are ordered; None while that is not known.

        One that is not restricted now stays the first unless another clearly ends before it.
        """
        known = [job for job in self.jobs if math.isfinite(job.fair_left)]
        if not self.ordered or not known:
            return None
        first = min(known, key=_end)
        if any(cap is not None for cap in self.present.values()):
            now = min(
                (job for job in known if self.present[job.uid] is None), key=_end, default=first
            )
            if now.fair_left - first.fair_left <= _CLEARLY * (now.left or 0.0):
                return now
        return first

    def is_filled_by(self, job: JobSignal) -> bool:
        """Return whether a job can use all of the node: then it gets back later what it lends.

        A single thread fills one CPU; of a larger node its use must have shown it.
        """
        return self.size <= max(_ONE_CPU, job.peak / _FULL)

    def equal(self) -> dict[str, int]:
        """Return by uid what each job would use if none was restricted."""
        parts = [Part(1.0, 0, self.wants[job.uid]) for job in self.jobs]
        shares = share_out(self.size, parts)
        return {job.uid: share for job, share in zip(self.jobs, shares, strict=True)}

    def caps(self) -> dict[str, int | None]:
        """Return by uid the cap of each job, None to leave it as it is.

        The job that ends first is not restricted, all others are; growth decides where it is not
        known of all when they end.
        """
        if self.ordered:
            first = self.first
            if first is None:
                return dict.fromkeys((job.uid for job in self.jobs), None)
            return {job.uid: self.size if job is first else self.floor(job) for job in self.jobs}
        found = caps(
            self.size, [Competitor(job.state, job.growth, self._least(job)) for job in self.jobs]
        )
        return {job.uid: cap for job, cap in zip(self.jobs, found, strict=True)}

    def floor(self, job: JobSignal) -> int:
        """Return the cap below which a job never goes."""
        return floor_of(self.size, len(self.jobs), self._least(job))

    def now(self, job: JobSignal) -> int:
        """Return the cap of a job now; the whole size if it has none."""
        cap = self.present[job.uid]
        return self.size if cap is None else min(cap, self.size)

    def could_use_more(self, job: JobSignal, *, up_to: int) -> bool:
        """Return whether a job is known to want more than it uses, and may have it under a cap."""
        use = use_of(job.on(self.node))
        return use is not None and min(self.wants[job.uid], up_to) > use

    def is_short(self, caps: Mapping[str, int], *, beside: JobSignal) -> bool:
        """Return whether caps by uid keep a job beside this one from what it wants."""
        return any(caps[job.uid] < self.wants[job.uid] for job in self.jobs if job is not beside)

    def raised(self, limits: Mapping[str, int], *, held: Set[str] = frozenset()) -> dict[str, int]:
        """Return caps by uid, raised by what other jobs leave; not those that are held."""
        wants = [
            min(self.wants[job.uid], limits[job.uid]) if job.uid in held else self.wants[job.uid]
            for job in self.jobs
        ]
        found = with_what_is_left(
            self.size, [limits[job.uid] for job in self.jobs], wants, room=self.room
        )
        return {job.uid: cap for job, cap in zip(self.jobs, found, strict=True)}

    def _least(self, job: JobSignal) -> int:
        return sum(map(least_limit, job.on(self.node)))


def _end(job: JobSignal) -> tuple[float, str]:
    return (job.fair_left, job.uid)


def contests(jobs: Sequence[JobSignal], signals: Signals) -> dict[str, Contest]:
    """Return the contests of some jobs by node, in the order of the names of the nodes.

    On each node only the jobs there are looked at, so that many nodes cost no more than their pods.
    """
    there: dict[str, list[JobSignal]] = {}
    for job in signals.jobs:
        for node in job.nodes:
            there.setdefault(node, []).append(job)
    decided = {job.uid for job in jobs}
    return {
        node: contest(
            node,
            [job for job in there[node] if job.uid in decided],
            Signals(signals.nodes, tuple(there[node])),
        )
        for node in sorted({node for job in jobs for node in job.nodes})
    }


def contest(node: str, jobs: Sequence[JobSignal], signals: Signals) -> Contest:
    """Return the contest of those of some jobs that have pods on a node."""
    here = sorted((job for job in jobs if job.on(node)), key=lambda job: job.uid)
    decided = {job.uid for job in here}
    allocatable = signals.nodes[node].allocatable
    others = signals.nodes[node].others + sum(
        _taken(pod) for job in signals.jobs if job.uid not in decided for pod in job.on(node)
    )
    pods = [pod for job in here for pod in job.on(node)]
    size = max(0, allocatable - others)
    requests = sum(map(_weight, pods))

    def part(pod: PodSignal) -> float:
        return size * _weight(pod) / requests

    def use(job: JobSignal, pod: PodSignal) -> float:
        # One that has just started, or was just resized, counts as busy: else no node is full while
        # jobs come one by one, and what a job is about to take is given to others.
        return part(pod) if pod.use is None or job.settling else pod.use

    used = sum(use(job, pod) for job in here for pod in job.on(node))
    full = others + used >= _FULL * allocatable

    def wants(job: JobSignal) -> int:
        found = 0
        for pod in job.on(node):
            most = min(signals.open_limit(pod), size)
            found += most if job.settling else wanted(pod, most=most, full=full, part=part(pod))
        return min(found, size)

    return Contest(
        node=node,
        size=size,
        room=max(0, int(_FILLED * allocatable) - others),
        jobs=here,
        wants={job.uid: wants(job) for job in here},
        present={job.uid: _present(job.on(node), signals) for job in here},
    )


def _taken(pod: PodSignal) -> int:
    """Return what a pod uses; its request while that is not known."""
    return pod.request if pod.use is None else pod.use


def _weight(pod: PodSignal) -> int:
    """Return the weight of a pod in CFS, which follows its request."""
    return max(1, pod.request)


def _present(pods: Sequence[PodSignal], signals: Signals) -> int | None:
    """Return the sum of the limits of pods; None if they are no less than the user's.

    A pod that was made anew beside one that is capped has no limit yet.
    """
    opened = [signals.open_limit(pod) for pod in pods]
    limits = [
        most if pod.limit is None else pod.limit for pod, most in zip(pods, opened, strict=True)
    ]
    return None if sum(limits) >= sum(opened) else sum(limits)
