"""The policy `shift`: CPU moves between the components of a job on a node, from idle to busy pods.

The sum of the limits of a job's pods on a node stays as the user wrote it, so no other job loses.
The requests of Guaranteed pods change with their limits. Source: CMS-DL's adjustment at run time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kfext.core.words import listed
from kfext.model.qos import QoS
from kfext.state.running.cpu.cadence import RESIZED, opted_in
from kfext.state.running.cpu.contest import Recipient, share_out
from kfext.state.running.policy import Advice, SignalPolicy
from kfext.state.running.proposal import Measure, PodSizes, Proposal, Size, in_stages
from kfext.state.running.signals import JobSignal, PodSignal, Signals

_STOPPED = 0.95
"""A pod counts as stopped by its limit if it uses at least this fraction of the limit."""
_MIN_LIMIT = 50
"""The lowest limit in millicores: a lower limit makes the slices of a CFS period too short."""
_MIN_CHANGE = 0.1
"""A change by less than this fraction of a limit is not written."""
_HEADROOM = 0.2
"""A limit is lowered at most to the use of its pod plus this fraction of the use."""


@dataclass(frozen=True, slots=True)
class _LimitedPod:
    """A pod with its present limit and use, and the limit `requested` by its user (millicores)."""

    pod: PodSignal
    limit: int
    use: int
    requested: int


def _propose(signals: Signals) -> Advice:
    eligible, ineligible = SHIFT.eligible_jobs(signals, _why_not)
    proposals = [_proposal(job) for job in eligible]
    return Advice(tuple(proposal for proposal in proposals if proposal is not None), ineligible)


SHIFT = SignalPolicy(
    name="shift",
    effect="moves CPU between the pods of one job, by their CPU limits",
    condition=RESIZED,
    max_mode=opted_in,
    evidence="`companion --part shift`",
    interval=30.0,
    propose=_propose,
)


def _why_not(job: JobSignal) -> str | None:
    for pod in job.pods:
        if pod.qos is QoS.BEST_EFFORT:
            return f"its pod of type {pod.component} is BestEffort, which cannot be resized"
        if pod.limit is None:
            return f"its pod of type {pod.component} has no CPU limit, so nothing restricts it"
    return None


def _proposal(job: JobSignal) -> Proposal | None:
    if job.settling:
        return None  # the CPU use of its pods may be older than the last shift
    sizes = [size for node in job.nodes for size in _sizes(job, job.on(node))]
    if not sizes:
        return None
    before = {pod.uid: pod for pod in job.pods}
    moved = [
        f"{before[size.pod].component} from {before[size.pod].limit}m to {size.limit}m"
        for size in sizes
    ]
    grows = any((size.limit or 0) > (before[size.pod].limit or 0) for size in sizes)
    favours = grows and any(size.limit != before[size.pod].requested.limit for size in sizes)
    why = (
        "CPU moves to the pods of the job that are at their limits"
        if favours
        else "the sum of the job's limits is restored"
    )
    measure = Measure.USE if job.rate is None else Measure.RATE
    return Proposal(
        policy=SHIFT.name,
        job=job.uid,
        change=PodSizes(in_stages(job, sizes)),
        reason=f"{why}: {listed(moved, noun='pods')}",
        measure=measure if favours else None,
    )


def _sizes(job: JobSignal, pods: Sequence[PodSignal]) -> Iterable[Size]:
    """Yield the new limits of a job's pods on a node."""
    limited = [
        _LimitedPod(pod, limit=pod.limit, use=pod.use, requested=pod.requested.limit)
        for pod in pods
        if pod.limit is not None and pod.use is not None and pod.requested.limit is not None
    ]
    if len(limited) < len(pods):
        return
    for pod, limit in zip(limited, _limits(limited), strict=True):
        if limit != pod.limit:
            guaranteed = pod.pod.qos is QoS.GUARANTEED
            yield Size(pod.pod.uid, limit, request=limit if guaranteed else None)


def _limits(pods: Sequence[_LimitedPod]) -> list[int]:
    """Return the new limits of a job's pods on a node; their sum is the sum of the user's limits.

    The present sum differs after a pod was replaced, or if a controller died between two stages.
    """
    now = [pod.limit for pod in pods]
    total = sum(pod.requested for pod in pods)
    busy = any(is_stopped(pod.pod) for pod in pods)
    if total >= sum(now) and not busy:
        return now
    if len({pod.pod.component for pod in pods}) < 2:
        return now if total == sum(now) else [pod.requested for pod in pods]
    return _divide(total, pods)


def _divide(total: int, pods: Sequence[_LimitedPod]) -> list[int]:
    """Return limits in proportion to the use of the pods; limits that would hardly change stay."""
    floors = [_floor(pod) for pod in pods]
    if sum(floors) > total:
        floors = [min(least_limit(pod.pod), pod.limit) for pod in pods]
    bounded = zip(pods, floors, strict=True)
    recipients = [Recipient(float(pod.use), floor, total) for pod, floor in bounded]
    while True:
        limits = share_out(total, recipients)
        hardly = [
            index
            for index, pod in enumerate(pods)
            if 0 < abs(limits[index] - pod.limit) < _MIN_CHANGE * pod.limit
        ]
        if not hardly:
            return limits
        for index in hardly:
            limit = pods[index].limit
            recipients[index] = Recipient(recipients[index].weight, limit, limit)


def _floor(pod: _LimitedPod) -> int:
    """Return the lowest new limit of a pod: its use plus the headroom, or its present limit."""
    used = 0 if is_stopped(pod.pod) else int(pod.use * (1 + _HEADROOM))
    return min(max(least_limit(pod.pod), used), pod.limit)


def is_stopped(pod: PodSignal) -> bool:
    """Return whether a pod uses all CPU that its limit allows."""
    if pod.limit is None or pod.use is None:
        return False
    return pod.use >= _STOPPED * pod.limit


def least_limit(pod: PodSignal) -> int:
    """Return the lowest limit of a pod.

    A Burstable pod needs a limit above its request: otherwise it could become Guaranteed, and
    Kubernetes refuses a resize that changes the QoS class.
    """
    return max(_MIN_LIMIT, pod.request + 1 if pod.qos is QoS.BURSTABLE else 0)
