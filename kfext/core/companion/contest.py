"""A node whose CPU several jobs compete for: who may take CPU of whom, and how much each may use.

The caps are FlowCon's (Zheng et al., ICPP 2019, and its code), with floors and without idling:
published, a job that grows slowly has no floor, so that it may get less than a job that has
converged. Of a job on several nodes the smallest share holds everywhere: the slowest pod sets the
pace of a job, so more elsewhere would be of no use to it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from kfext.core.companion.cpu import Part, least_limit, share_out, wanted
from kfext.core.companion.signals import JobSignal, PodSignal, Signals, use_of
from kfext.core.progress.reported import GrowthState


@dataclass(frozen=True, slots=True)
class Competitor:
    """A job on a node: its list, its G if known, and the least that its pods there need."""

    state: GrowthState
    growth: float | None
    least: int


def floor_of(size: int, jobs: int, least: int) -> int:
    """Return the cap below which a job never goes: 1/(n+1) of a node with n jobs, its requests."""
    return max(least, size // (jobs + 1))


def caps(size: int, competitors: Sequence[Competitor]) -> list[int | None]:
    """Return the cap of each job on a node of a size; None leaves a job as it is.

    A job may use the share of the node that it has in the growth of all jobs there. One on the list
    Watching stays as it is; if all are completing, none is restricted.
    """
    if all(one.state is GrowthState.COMPLETING for one in competitors):
        return [size] * len(competitors)
    total = sum(one.growth or 0.0 for one in competitors)
    return [
        None
        if one.growth is None or one.state is GrowthState.WATCHING or total <= 0
        else max(int(size * one.growth / total), floor_of(size, len(competitors), one.least))
        for one in competitors
    ]


def with_what_is_left(
    size: int, limits: Sequence[int], wants: Sequence[int], *, room: int
) -> list[int]:
    """Return caps that are raised by what other jobs leave of a node, in proportion to the caps.

    `wants`: what each would use without a cap. `room`: what all may use together, less than the
    size so that a job which leaves something can be told from one that is squeezed. If it is
    enough for all, no job that wants more is restricted.
    """
    hungry = [at for at, want in enumerate(wants) if want > limits[at]]
    left = room - sum(want for at, want in enumerate(wants) if want <= limits[at])
    raised = list(limits)
    if sum(wants[at] for at in hungry) <= left:
        for at in hungry:
            raised[at] = size
        return raised
    parts = [Part(weight=limits[at], least=limits[at], most=wants[at]) for at in hungry]
    for at, cap in zip(hungry, share_out(left, parts), strict=True):
        raised[at] = cap
    return raised


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


_MUCH_SHORTER = 0.5
"""The part of the work of a job that one may take to which it lends CPU, if it is not sure to get
that back."""


def served(job: JobSignal, of: Contest) -> list[JobSignal]:
    """Return the jobs to which CPU of a job may go."""
    if of.ordered:
        first = of.first
        return [] if first is None or first is job else [first]
    return [other for other in of.jobs if _grows_faster(other, job) and other.ends_before(job)]


def _grows_faster(other: JobSignal, job: JobSignal) -> bool:
    return other.state is GrowthState.NEW and (other.growth or 0.0) > (job.growth or 0.0)


def outlasted(job: JobSignal, of: Contest) -> bool:
    """Return whether all jobs that grow faster than this one end after it.

    What is taken from it then only delays it: it ends before it could get anything back.
    """
    faster = [other for other in of.jobs if _grows_faster(other, job)]
    return bool(faster) and not any(other.ends_before(job) for other in faster)


def is_left_open(job: JobSignal, of: Contest, *, share: float) -> bool:
    """Return whether a job is not restricted on a node, whatever its cap would be.

    `share`: of all that it takes, how much it may lend without being sure to get it back.
    """
    first = of.first
    if not of.ordered:
        return outlasted(job, of)
    if first is None or of.is_filled_by(job):
        return False
    # Whether it gets all of it back is not known, so it lends a little, and where that helps much.
    little = job.budget.may_lend(share, left=job.left or 0.0)
    return not (little and first.fair_left <= _MUCH_SHORTER * job.fair_left)


Caps = dict[str, dict[str, int]]
"""Millicores by node and by the uid of a job."""


def caps_on_nodes(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], *, budget: Callable[[JobSignal], float]
) -> Caps:
    """Return the caps of jobs; `of`: the contests by node.

    `budget`: how much of all that it takes a job may lend without being sure to get it back.
    """
    jobs = list(jobs)
    caps = _before_what_is_left(jobs, of, budget)
    raised = {node: one.raised(caps[node]) for node, one in of.items()}
    held = _held(jobs, of, caps, raised)
    return {
        node: one.raised(caps[node] | held[node], held=held[node].keys())
        if held[node]
        else raised[node]
        for node, one in of.items()
    }


def _before_what_is_left(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], budget: Callable[[JobSignal], float]
) -> Caps:
    """Return the caps before they are raised by what other jobs leave."""
    by_growth = {node: one.caps() for node, one in of.items()}
    caps: Caps = {node: {} for node in of}
    for job in jobs:
        on = [of[node] for node in job.nodes]
        wanted = {one.node: by_growth[one.node][job.uid] for one in on}
        shares = [
            (one.now(job) if (cap := wanted[one.node]) is None else cap) / one.size
            for one in on
            if one.size > 0
        ]
        for one in on:
            if is_left_open(job, one, share=budget(job)):
                caps[one.node][job.uid] = one.size
            elif all(cap is None for cap in wanted.values()):
                caps[one.node][job.uid] = one.now(job)
            else:
                share = round(min(shares, default=1.0) * one.size)
                caps[one.node][job.uid] = min(max(share, one.floor(job)), one.size)
    return caps


def _held(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], caps: Caps, raised: Caps
) -> dict[str, dict[str, int]]:
    """Return by node and uid the caps of jobs that another node holds to less than is left there.

    Where no other job on the node wants more, nothing is gained by it, so such a cap stays raised.
    """
    found: Caps = {node: {} for node in of}
    for job in jobs:
        uid, on = job.uid, [of[node] for node in job.nodes]
        stopped = [one for one in on if raised[one.node][uid] < one.wants[uid]]
        pace = min((raised[one.node][uid] / one.size for one in stopped), default=1.0)
        for one in on:
            cap = max(caps[one.node][uid], round(pace * one.size))
            if cap < raised[one.node][uid] and one.is_short(raised[one.node], beside=job):
                found[one.node][uid] = cap
    return found
