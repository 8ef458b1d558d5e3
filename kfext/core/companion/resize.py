"""Resize: CPU moves between jobs on a node, to the job that ends first or that still grows.

If all jobs on a node show how far they are, the job that would end first with equal shares gets
more. The others lend CPU to it and get it back once it has ended, so no job ends later. Otherwise
converged jobs leave CPU to growing jobs. Only the CPU limits of Burstable pods move. A limit
shrinks only if that takes CPU in use for a job that could use more. CPU that no job uses is given
back. Sources: Friedman and Henderson, the Fair Sojourn Protocol, SIGMETRICS 2003, with floors;
Zheng et al., FlowCon, ICPP 2019, for growth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kfext.core.companion.contest import Contest, caps_on_nodes, contests, outlasted, served
from kfext.core.companion.cpu import CHANGE, INTERVAL, RESIZED, opted_in, parts_of, share_out
from kfext.core.companion.operation import measure_for
from kfext.core.companion.policy import Advice, Parameter, SignalPolicy
from kfext.core.companion.proposal import PodSizes, Proposal, Size, in_stages, restore_proposal
from kfext.core.companion.signals import JobSignal, Signals, use_of
from kfext.model.qos import QoS

_Shares = Mapping[str, Mapping[str, int]]
"""By node and uid, what each job would use without any caps; in millicores."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A new cap of a job on a node.

    `caps`: the caps of all jobs there, by uid. `taken`: the millicores in use that it takes away.
    """

    contest: Contest
    caps: Mapping[str, int]
    cap: int
    shrinks: bool
    taken: int


def _propose(signals: Signals) -> Advice:
    willing, stood_down = RESIZE.eligible_jobs(signals, _why_not)
    stood_down |= {job.uid: job.unread for job in willing if job.unread}
    spent = [job for job in willing if job.budget.spent(RESIZE.parameter_for(job, "budget"))]
    jobs = [job for job in willing if job not in spent]
    of = contests(jobs, signals)
    changes = _changes(jobs, of)
    equal = {node: proposal.equal() for node, proposal in of.items()}
    proposals = [_left_alone(job, signals) for job in spent]
    proposals += [_proposal(job, changes[job.uid], signals, equal) for job in jobs]
    return Advice(tuple(proposal for proposal in proposals if proposal is not None), stood_down)


RESIZE = SignalPolicy(
    name="resize",
    effect="moves CPU between the jobs on a node",
    condition=RESIZED,
    max_mode=opted_in,
    parameters={
        "budget": Parameter(
            0.1,
            0.0,
            1.0,
            "what a job may lose below an equal share of its nodes, as a part of the CPU that it "
            "has used; then it is left alone. Also what it may [lend](resize.md#what-it-does) "
            "without being sure to get it back, as a part of all that it takes",
        ),
        "change": CHANGE,
        "interval": replace(
            INTERVAL,
            effect=f"{INTERVAL.effect}; while all jobs that share nodes with it are completing and "
            "none of them prints a total, the interval doubles, up to eightfold",
        ),
    },
    propose=_propose,
)


def _why_not(job: JobSignal) -> str | None:
    """Return why a job cannot be resized, or None."""
    for pod in job.pods:
        if pod.qos is not QoS.BURSTABLE:
            return (
                f"its pod of type {pod.component} is {pod.qos}: "
                "resize moves the CPU limits of Burstable pods alone"
            )
    return None


def _left_alone(job: JobSignal, signals: Signals) -> Proposal | None:
    share = RESIZE.parameter_for(job, "budget")
    reason = (
        f"it has lost {job.budget.lost:.0f} CPU seconds below an equal share, more than "
        f"{share:.0%} of the {job.budget.used:.0f} that it used; it is left alone from now on"
    )
    return restore_proposal(RESIZE.name, job, signals, reason=reason, rests=True)


def _changes(jobs: Sequence[JobSignal], of: Mapping[str, Contest]) -> dict[str, list[_Change]]:
    """Return by uid the changes of a job's cap on its nodes; `of`: the contests by node."""
    caps = caps_on_nodes(jobs, of, budget=lambda job: RESIZE.parameter_for(job, "budget"))
    changes: dict[str, list[_Change]] = {job.uid: [] for job in jobs}
    for contest in of.values():
        for job in contest.jobs:
            if (change := _change(job, contest, caps[contest.node])) is not None:
                changes[job.uid].append(change)
    return changes


def _change(job: JobSignal, of: Contest, caps: Mapping[str, int]) -> _Change | None:
    """Return the change of a job's cap on a node, or None without a change worth a write."""
    cap, present = caps[job.uid], of.present[job.uid]
    if cap >= of.size:
        return None if present is None else _Change(of, caps, of.size, shrinks=False, taken=0)
    if present is not None and abs(cap - present) < RESIZE.parameter_for(job, "change") * present:
        return None
    shrinks = present is None or cap < present
    taken = max(0, (use_of(job.on(of.node)) or 0) - cap) if shrinks else 0
    return _Change(of, caps, cap, shrinks=shrinks, taken=taken)


def _proposal(
    job: JobSignal, changes: Sequence[_Change], signals: Signals, equal: _Shares
) -> Proposal | None:
    winner = _winner(job, changes)
    if winner is None:
        changes = [change for change in changes if not change.shrinks]
    sizes = [size for change in changes for size in _sizes(job, change, signals)]
    if not sizes:
        return None
    return Proposal(
        policy=RESIZE.name,
        job=job.uid,
        change=PodSizes(in_stages(job, sizes)),
        reason=_reason(job, changes),
        serves=job.uid if winner is None else winner.uid,
        measure=None if winner is None else measure_for(winner.rate),
        expected=None if winner is None else _with_equal_shares(winner, equal),
    )


def _winner(job: JobSignal, changes: Iterable[_Change]) -> JobSignal | None:
    """Return the job that gains most by what the changes take, or None."""
    candidates = [
        other
        for change in changes
        if change.taken
        for other in served(job, change.contest)
        if change.contest.could_use_more(other, up_to=change.caps[other.uid])
    ]
    return max(candidates, key=lambda other: (other.growth or 0.0, other.uid), default=None)


def _with_equal_shares(job: JobSignal, equal: _Shares) -> float | None:
    """Return the value of a job's measure without any caps on its nodes."""
    share = sum(equal[node][job.uid] for node in job.nodes)
    if job.rate is None:
        return float(share)
    return job.rate * share / job.use if job.use else None


def _sizes(job: JobSignal, change: _Change, signals: Signals) -> Iterable[Size]:
    """Yield the new limits of a job's pods on a node; the pods share its cap by their use."""
    pods = job.on(change.contest.node)
    open_limits = [signals.open_limit(pod) for pod in pods]
    opened = change.cap >= change.contest.size
    limits = open_limits if opened else share_out(change.cap, parts_of(pods, open_limits))
    for pod, limit in zip(pods, limits, strict=True):
        threshold = 0.0 if opened else RESIZE.parameter_for(job, "change")
        if pod.limit is None:
            worth = limit < signals.open_limit(pod)
        else:
            worth = limit != pod.limit and abs(limit - pod.limit) >= threshold * pod.limit
        if worth:
            yield Size(pod.uid, limit)


def _reason(job: JobSignal, changes: Sequence[_Change]) -> str:
    first = min(changes, key=lambda rival: (not rival.shrinks, rival.cap))
    of = first.contest
    if of.ordered and not first.shrinks and first.cap >= of.size:
        return f"nothing restricts it on {of.node} any more: it ends next, or has lent enough"
    if first.cap >= of.size and outlasted(job, of):
        return f"nothing restricts it on {of.node} any more: it ends before the jobs that grow"
    if first.cap >= of.size:
        return f"nothing restricts it on {of.node} any more: no other job needs what it takes"
    if not first.shrinks:
        return f"{first.cap}m of CPU on {of.node}: other jobs leave that much"
    if of.ordered:
        return (
            f"{first.cap}m of the {of.size}m of CPU on {of.node}: one of the {len(of.jobs)} jobs "
            "there ends before it, after which it gets back what it gives"
        )
    total = sum(rival.growth or 0.0 for rival in of.jobs)
    share = (job.growth or 0.0) / total if total > 0 else 0.0
    return (
        f"{first.cap}m of the {of.size}m of CPU on {of.node}: it has {share:.0%} of the growth "
        f"efficiency of the {len(of.jobs)} jobs there; a job that grows faster can use more"
    )
