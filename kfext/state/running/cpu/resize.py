"""The policy `resize`: the job of a node that would end first gets a higher CPU weight.

A boost raises its request, and with it its weight; limits stay as the user wrote them. `contest`
chooses the job and the size of the boost. Source: Friedman and Henderson, the Fair Sojourn
Protocol, SIGMETRICS 2003.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from kfext.core.words import listed
from kfext.model.policy import Mode
from kfext.model.qos import QoS
from kfext.state.running.cpu.cadence import RESIZED, opted_in
from kfext.state.running.cpu.contest import Contest, contests, prioritised_jobs
from kfext.state.running.policy import Advice, SignalPolicy
from kfext.state.running.proposal import PodSizes, Proposal, Size, in_stages
from kfext.state.running.signals import JobSignal, PodSignal, Signals

_MIN_CHANGE = 0.2
"""A change by less than this fraction of a request is not written."""


def _propose(signals: Signals) -> Advice:
    eligible, ineligible = RESIZE.eligible_jobs(signals, _why_not)
    ineligible |= {job.uid: job.unread for job in eligible if job.unread}
    acting = [job for job in eligible if _acts(job)]
    proposals = list(_proposals(signals, acting, at_once=True))
    if observing := [job for job in eligible if not _acts(job)]:
        # A dry run shows the proposals as if kfext could act on all these jobs.
        uids = {job.uid for job in observing}
        dry_run = _proposals(signals, [*acting, *observing], at_once=False)
        proposals += [proposal for proposal in dry_run if proposal.job in uids]
    return Advice(tuple(proposals), ineligible)


RESIZE = SignalPolicy(
    name="resize",
    effect="moves CPU between the jobs on a node, by their CPU requests",
    condition=RESIZED,
    max_mode=opted_in,
    evidence="| 3 jobs on one node, mean against plain |",
    interval=10.0,
    propose=_propose,
)


def _why_not(job: JobSignal) -> str | None:
    for pod in job.pods:
        if pod.qos is not QoS.BURSTABLE:
            return (
                f"its pod of type {pod.component} is {pod.qos}: "
                "resize moves the CPU requests of Burstable pods alone"
            )
    return None


def _acts(job: JobSignal) -> bool:
    return job.policies[RESIZE.name].mode is Mode.ACT


@dataclass(slots=True)
class _Node:
    """The decision on a node.

    `wanted`: the request that each job should have, by uid. `shrinks`: whether a request is
    lowered, so that growth waits for the kubelet. `grown`: the granted growth, by uid.
    """

    contest: Contest
    prioritised: JobSignal | None
    wanted: Mapping[str, int]
    shrinks: bool = False
    grown: dict[str, int] = field(default_factory=dict)

    def grant(self, job: JobSignal, growth: int) -> int:
        """Grant as much of the growth of a job as fits now, and return it, in millicores."""
        allowed = self.contest.allowance(job.namespace) - sum(self.grown.values())
        granted = growth if growth <= allowed else 0 if self.shrinks else max(0, allowed)
        self.grown[job.uid] = granted
        return granted


def _proposals(
    signals: Signals, candidates: Collection[JobSignal], *, at_once: bool
) -> Iterator[Proposal]:
    """Yield the proposals for the candidates; `at_once`: only growth that fits now."""
    by_node = contests(signals)
    first = prioritised_jobs(by_node, candidates)
    nodes = {
        node: _Node(contest, first.get(node), _wanted(contest, first.get(node), candidates))
        for node, contest in by_node.items()
    }
    for node in nodes.values():
        node.shrinks = any(_lowers(job, node) for job in candidates)
    for job in candidates:
        here = [nodes[node] for node in job.nodes]
        sizes = [size for node in here for size in _sizes(job, node, at_once=at_once)]
        if sizes:
            yield Proposal(
                policy=RESIZE.name,
                job=job.uid,
                change=PodSizes(in_stages(job, sizes)),
                reason=_reason(job, here, sizes),
            )


def _wanted(
    contest: Contest, prioritised: JobSignal | None, candidates: Collection[JobSignal]
) -> dict[str, int]:
    """Return the new request of each candidate on a node, by uid; other jobs stay unchanged."""
    here = [job for job in candidates if job in contest.jobs]
    if len(contest.jobs) > 1 and (not contest.is_open or (prioritised is None and contest.unknown)):
        return {}
    wanted = contest.requests(prioritised, here)
    return {job.uid: wanted[job.uid] for job in here}


def _lowers(job: JobSignal, node: _Node) -> bool:
    changes = _changes(job, node, node.wanted.get(job.uid))
    return not job.in_flight and any(to < pod.request for pod, to in changes)


def _sizes(job: JobSignal, node: _Node, *, at_once: bool) -> list[Size]:
    """Return the new requests of a job's pods on a node; `at_once`: only growth that fits now."""
    changes = list(_changes(job, node, node.wanted.get(job.uid)))
    growth = sum(to - pod.request for pod, to in changes)
    if at_once and growth > 0 and (granted := node.grant(job, growth)) < growth:
        now = sum(pod.request for pod in job.on(node.contest.node))
        changes = list(_changes(job, node, now + granted))
    return [Size(pod.uid, request=to) for pod, to in changes]


def _changes(job: JobSignal, node: _Node, total: int | None) -> Iterator[tuple[PodSignal, int]]:
    """Yield the pods of a job on a node to write, each with its new request.

    `total`: the new sum of the requests; None means no change. Small changes are left out.
    """
    if total is None:
        return
    requests = node.contest.split(job, total)
    for pod in job.on(node.contest.node):
        to = requests[pod.uid]
        restored = to == pod.requested.request != pod.request
        if restored or (to != pod.request and abs(to - pod.request) >= _MIN_CHANGE * pod.request):
            yield pod, to


def _reason(job: JobSignal, nodes: Collection[_Node], sizes: Collection[Size]) -> str:
    to = {size.pod: size.request for size in sizes}
    before = sum(pod.request for pod in job.pods)
    after = sum(to.get(pod.uid, pod.request) or 0 for pod in job.pods)
    return f"CPU request {before}m becomes {after}m: {_why(job, nodes)}"


def _why(job: JobSignal, nodes: Collection[_Node]) -> str:
    shared = [node for node in nodes if len(node.contest.jobs) > 1]
    names = listed([node.contest.node for node in shared], noun="nodes")
    if not shared:
        return "no other job shares its nodes"
    jobs = {other.uid: other for node in shared for other in node.contest.jobs}
    among = f"of the {len(jobs)} jobs on {names}"
    if any(node.prioritised is job for node in shared):
        return f"it would end first {among}"
    if job.young and not job.known:
        return f"it keeps an equal share {among} until its progress is known"
    return f"another {among} would end first"
