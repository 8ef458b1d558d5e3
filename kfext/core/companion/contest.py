"""The competition of jobs for the CPU of one node: which job gives CPU, and the cap of each job.

The caps are FlowCon's (Zheng et al., ICPP 2019, and its code), with a floor for each job and
without idle CPU. As published, a slow job has no floor and may get less than a converged job. A job
on several nodes has the smallest of its shares on all of them: its slowest pod sets its pace, so a
larger share elsewhere would be of no use.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from kfext.core.companion.cpu import Part, least_limit, share_out, wanted
from kfext.core.companion.signals import JobSignal, PodSignal, Signals, use_of
from kfext.core.progress.reported import GrowthState


@dataclass(frozen=True, slots=True)
class Competitor:
    """A job on a node: its list, its growth efficiency if known, and the least its pods need."""

    state: GrowthState
    growth: float | None
    least: int


def floor_of(size: int, jobs: int, least: int) -> int:
    """Return the lowest cap of a job: 1/(n+1) of a node with n jobs, and at least its requests."""
    return max(least, size // (jobs + 1))


def caps(size: int, competitors: Sequence[Competitor]) -> list[int | None]:
    """Return the cap of each job on a node; None leaves a job as it is.

    A job may use a share of the node equal to its share of the growth of all jobs there. A job on
    the list Watching stays as it is. If all jobs are completing, no job is restricted.
    """
    if all(rival.state is GrowthState.COMPLETING for rival in competitors):
        return [size] * len(competitors)
    total = sum(rival.growth or 0.0 for rival in competitors)
    return [
        None
        if rival.growth is None or rival.state is GrowthState.WATCHING or total <= 0
        else max(int(size * rival.growth / total), floor_of(size, len(competitors), rival.least))
        for rival in competitors
    ]


def with_what_is_left(
    size: int, limits: Sequence[int], wants: Sequence[int], *, room: int
) -> list[int]:
    """Return the caps, raised in proportion by the CPU that other jobs leave.

    `wants`: what each job would use without a cap. `room`: what all jobs may use together. It is
    less than the size, so that a job that leaves CPU differs from a job that is squeezed. If the
    room is enough for all, no job that wants more is restricted.
    """
    hungry = [index for index, want in enumerate(wants) if want > limits[index]]
    rest = room - sum(want for index, want in enumerate(wants) if want <= limits[index])
    raised = list(limits)
    if sum(wants[index] for index in hungry) <= rest:
        for index in hungry:
            raised[index] = size
        return raised
    parts = [Part(weight=limits[index], least=limits[index], most=wants[index]) for index in hungry]
    for index, cap in zip(hungry, share_out(rest, parts), strict=True):
        raised[index] = cap
    return raised


_FULL = 0.95
"""A node counts as full from this share of its allocatable CPU."""
_ONE_CPU = 1000
_CLEARLY = 0.1
"""A job takes the turn of another job if it ends earlier by more than this part of its work."""
_FILLED = 0.93
"""Capped jobs share what others leave up to this share of the node, below `_FULL`."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A node and the jobs on it that are decided on; CPU in millicores.

    `size`: what the jobs share: the allocatable CPU less what all other pods use.
    `room`: the part of the size that may go to jobs beyond their caps.
    `wants`, `present`: by uid, what a job would use without a cap, and its present cap, if any.
    """

    node: str
    size: int
    room: int
    jobs: Sequence[JobSignal]
    wants: Mapping[str, int]
    present: Mapping[str, int | None]

    @property
    def ordered(self) -> bool:
        """Whether all jobs show how far they are, so that the order of their ends is known."""
        return all(job.left is not None for job in self.jobs)

    @property
    def first(self) -> JobSignal | None:
        """The job that ends first, or None without a known order of the ends.

        An unrestricted job stays the first until another job clearly ends before it.
        """
        finite = [job for job in self.jobs if math.isfinite(job.fair_left)]
        if not self.ordered or not finite:
            return None
        first = min(finite, key=_end)
        if any(cap is not None for cap in self.present.values()):
            now = min(
                (job for job in finite if self.present[job.uid] is None), key=_end, default=first
            )
            if now.fair_left - first.fair_left <= _CLEARLY * (now.left or 0.0):
                return now
        return first

    def is_filled_by(self, job: JobSignal) -> bool:
        """Return whether a job can use the whole node; such a job later gets back what it lends.

        A single thread fills one CPU. On a larger node the job must have used that much before.
        """
        return self.size <= max(_ONE_CPU, job.peak / _FULL)

    def equal(self) -> dict[str, int]:
        """Return by uid what each job would use without any caps."""
        parts = [Part(1.0, 0, self.wants[job.uid]) for job in self.jobs]
        shares = share_out(self.size, parts)
        return {job.uid: share for job, share in zip(self.jobs, shares, strict=True)}

    def caps(self) -> dict[str, int | None]:
        """Return by uid the cap of each job; None leaves a job as it is.

        The job that ends first is not restricted, and all others are. Growth decides if the end of
        a job is unknown.
        """
        if self.ordered:
            first = self.first
            if first is None:
                return dict.fromkeys((job.uid for job in self.jobs), None)
            return {job.uid: self.size if job is first else self.floor(job) for job in self.jobs}
        shares = caps(
            self.size, [Competitor(job.state, job.growth, self._least(job)) for job in self.jobs]
        )
        return {job.uid: cap for job, cap in zip(self.jobs, shares, strict=True)}

    def floor(self, job: JobSignal) -> int:
        """Return the lowest cap of a job."""
        return floor_of(self.size, len(self.jobs), self._least(job))

    def now(self, job: JobSignal) -> int:
        """Return the present cap of a job, or the whole size without a cap."""
        cap = self.present[job.uid]
        return self.size if cap is None else min(cap, self.size)

    def could_use_more(self, job: JobSignal, *, up_to: int) -> bool:
        """Return whether a job wants more than it uses, and a cap of `up_to` allows more."""
        use = use_of(job.on(self.node))
        return use is not None and min(self.wants[job.uid], up_to) > use

    def is_short(self, caps: Mapping[str, int], *, beside: JobSignal) -> bool:
        """Return whether the caps, by uid, keep a job other than `beside` from what it wants."""
        return any(caps[job.uid] < self.wants[job.uid] for job in self.jobs if job is not beside)

    def raised(self, limits: Mapping[str, int], *, held: Set[str] = frozenset()) -> dict[str, int]:
        """Return the caps by uid, raised by what other jobs leave, except the held caps."""
        wants = [
            min(self.wants[job.uid], limits[job.uid]) if job.uid in held else self.wants[job.uid]
            for job in self.jobs
        ]
        raised = with_what_is_left(
            self.size, [limits[job.uid] for job in self.jobs], wants, room=self.room
        )
        return {job.uid: cap for job, cap in zip(self.jobs, raised, strict=True)}

    def _least(self, job: JobSignal) -> int:
        return sum(map(least_limit, job.on(self.node)))


def _end(job: JobSignal) -> tuple[float, str]:
    return (job.fair_left, job.uid)


def contests(jobs: Sequence[JobSignal], signals: Signals) -> dict[str, Contest]:
    """Return the contests of some jobs by node, in the order of the node names.

    Each node sees only the jobs on it, so many nodes cost no more than their pods.
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
    """Return the contest on a node of the given jobs that have pods there."""
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
        # A pod that just started or was just resized counts as busy. Otherwise no node is full
        # while jobs come one by one, and others get the CPU that this pod is about to use.
        return part(pod) if pod.use is None or job.settling else pod.use

    used = sum(use(job, pod) for job in here for pod in job.on(node))
    full = others + used >= _FULL * allocatable

    def wants(job: JobSignal) -> int:
        total = 0
        for pod in job.on(node):
            limit = min(signals.open_limit(pod), size)
            total += limit if job.settling else wanted(pod, most=limit, full=full, part=part(pod))
        return min(total, size)

    return Contest(
        node=node,
        size=size,
        room=max(0, int(_FILLED * allocatable) - others),
        jobs=here,
        wants={job.uid: wants(job) for job in here},
        present={job.uid: _present(job.on(node), signals) for job in here},
    )


def _taken(pod: PodSignal) -> int:
    """Return what a pod uses, or its request if its use is unknown."""
    return pod.request if pod.use is None else pod.use


def _weight(pod: PodSignal) -> int:
    """Return the CFS weight of a pod, which follows its request."""
    return max(1, pod.request)


def _present(pods: Sequence[PodSignal], signals: Signals) -> int | None:
    """Return the sum of the limits of pods, or None without a limit below the user's.

    A replaced pod has no limit yet, so it counts as unrestricted.
    """
    opened = [signals.open_limit(pod) for pod in pods]
    limits = [
        limit if pod.limit is None else pod.limit for pod, limit in zip(pods, opened, strict=True)
    ]
    return None if sum(limits) >= sum(opened) else sum(limits)


_MUCH_SHORTER = 0.5
"""A job that may not get CPU back lends only to a job with at most this part of its work."""


def served(job: JobSignal, of: Contest) -> list[JobSignal]:
    """Return the jobs that may get CPU from a job."""
    if of.ordered:
        first = of.first
        return [] if first is None or first is job else [first]
    return [other for other in of.jobs if _grows_faster(other, job) and other.ends_before(job)]


def _grows_faster(other: JobSignal, job: JobSignal) -> bool:
    return other.state is GrowthState.NEW and (other.growth or 0.0) > (job.growth or 0.0)


def outlasted(job: JobSignal, of: Contest) -> bool:
    """Return whether all jobs that grow faster than this job end after it.

    Taking CPU from it would then only delay it: it ends before it could get anything back.
    """
    faster = [other for other in of.jobs if _grows_faster(other, job)]
    return bool(faster) and not any(other.ends_before(job) for other in faster)


def is_left_open(job: JobSignal, of: Contest, *, share: float) -> bool:
    """Return whether a job is not restricted on a node, whatever its cap would be.

    `share`: the part of all its work that it may lend without being sure to get it back.
    """
    first = of.first
    if not of.ordered:
        return outlasted(job, of)
    if first is None or of.is_filled_by(job):
        return False
    # The job may not get everything back, so it lends a little, and only where that helps much.
    little = job.budget.may_lend(share, left=job.left or 0.0)
    return not (little and first.fair_left <= _MUCH_SHORTER * job.fair_left)


Caps = dict[str, dict[str, int]]
"""Millicores by node, then by the uid of the job."""


def caps_on_nodes(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], *, budget: Callable[[JobSignal], float]
) -> Caps:
    """Return the caps of jobs; `of`: the contests by node.

    `budget`: the part of all its work that a job may lend without being sure to get it back.
    """
    jobs = list(jobs)
    caps = _before_what_is_left(jobs, of, budget)
    raised = {node: contest.raised(caps[node]) for node, contest in of.items()}
    held = _held(jobs, of, caps, raised)
    return {
        node: contest.raised(caps[node] | held[node], held=held[node].keys())
        if held[node]
        else raised[node]
        for node, contest in of.items()
    }


def _before_what_is_left(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], budget: Callable[[JobSignal], float]
) -> Caps:
    """Return the caps before they are raised by what other jobs leave."""
    by_growth = {node: contest.caps() for node, contest in of.items()}
    caps: Caps = {node: {} for node in of}
    for job in jobs:
        here = [of[node] for node in job.nodes]
        wanted = {contest.node: by_growth[contest.node][job.uid] for contest in here}
        shares = [
            (contest.now(job) if (cap := wanted[contest.node]) is None else cap) / contest.size
            for contest in here
            if contest.size > 0
        ]
        for contest in here:
            if is_left_open(job, contest, share=budget(job)):
                caps[contest.node][job.uid] = contest.size
            elif all(cap is None for cap in wanted.values()):
                caps[contest.node][job.uid] = contest.now(job)
            else:
                share = round(min(shares, default=1.0) * contest.size)
                caps[contest.node][job.uid] = min(max(share, contest.floor(job)), contest.size)
    return caps


def _held(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], caps: Caps, raised: Caps
) -> dict[str, dict[str, int]]:
    """Return by node and uid the caps of jobs that a tighter node holds below the room here.

    A cap stays raised if no other job on the node wants more, since no job would gain.
    """
    held: Caps = {node: {} for node in of}
    for job in jobs:
        uid, here = job.uid, [of[node] for node in job.nodes]
        stopped = [contest for contest in here if raised[contest.node][uid] < contest.wants[uid]]
        pace = min((raised[contest.node][uid] / contest.size for contest in stopped), default=1.0)
        for contest in here:
            cap = max(caps[contest.node][uid], round(pace * contest.size))
            if cap < raised[contest.node][uid] and contest.is_short(
                raised[contest.node], beside=job
            ):
                held[contest.node][uid] = cap
    return held
