"""Shift CPU between the components of one job on a node: from those that idle to the busy ones.

The limits of a job's pods on a node keep their sum, so no other job loses. Those of Guaranteed pods
move together with the requests, else the limit alone. Source: CMS-DL's adjustment at run time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kfext.core.companion.demand import is_stopped, least_limit
from kfext.core.companion.policy import Advice, Policy
from kfext.core.companion.proposal import Proposal, Size, in_stages
from kfext.core.companion.share_out import Part, share_out
from kfext.core.companion.signals import JobSignal, PodSignal, Signals
from kfext.core.companion.trial import measure_for
from kfext.core.words import listed
from kfext.model.qos import QoS


@dataclass(frozen=True, slots=True)
class _Shared:
    """A pod whose limit is part of a sum: its limit and its use now, in millicores."""

    pod: PodSignal
    limit: int
    use: int


def _propose(signals: Signals) -> Advice:
    willing, stood_down = SHIFT.willing(signals, _why_not)
    found = [_proposal(job) for job in willing]
    return Advice(tuple(one for one in found if one is not None), stood_down)


SHIFT = Policy(
    name="shift",
    parameters={"interval": 30.0, "change": 0.1, "headroom": 0.2},
    propose=_propose,
)


def _why_not(job: JobSignal) -> str | None:
    """Return why nothing can be shifted within a job, None if it can."""
    for pod in job.pods:
        if pod.qos is QoS.BEST_EFFORT:
            return f"its pod of type {pod.component} is BestEffort, which cannot be resized"
        if pod.limit is None:
            return f"its pod of type {pod.component} has no CPU limit, so nothing restricts it"
    return None


def _proposal(job: JobSignal) -> Proposal | None:
    if job.settling:
        return None  # what its pods use may be from before the last shift
    sizes = [size for node in job.nodes for size in _sizes(job, job.on(node))]
    if not sizes:
        return None
    before = {pod.uid: pod for pod in job.pods}
    moved = [
        f"{before[size.pod].component} from {before[size.pod].limit}m to {size.limit}m"
        for size in sizes
    ]
    return Proposal(
        policy=SHIFT.name,
        job=job.uid,
        stages=in_stages(job, sizes),
        reason=f"CPU goes to the pods of the job that use theirs up: {listed(moved, of='pods')}",
        serves=job.uid,
        measure=measure_for(job.rate),
    )


def _sizes(job: JobSignal, pods: Sequence[PodSignal]) -> Iterable[Size]:
    """Yield the new limits of a job's pods on one node; their sum stays what it is."""
    shared = [
        _Shared(pod, limit=pod.limit, use=pod.use)
        for pod in pods
        if pod.limit is not None and pod.use is not None
    ]
    components = {pod.component for pod in pods}
    if len(shared) < len(pods) or len(components) < 2 or not any(map(is_stopped, pods)):
        return
    for one, limit in zip(shared, _divided(job, shared), strict=True):
        if limit != one.limit:
            guaranteed = one.pod.qos is QoS.GUARANTEED
            yield Size(one.pod.uid, limit, request=limit if guaranteed else None)


def _divided(job: JobSignal, shared: Sequence[_Shared]) -> list[int]:
    """Return the limits by use; one that would hardly change keeps what it has."""
    total = sum(one.limit for one in shared)
    headroom = SHIFT.of(job, "headroom")
    parts = [Part(float(one.use), _floor(one, headroom), total) for one in shared]
    while True:
        limits = share_out(total, parts)
        hardly = [
            at
            for at, one in enumerate(shared)
            if 0 < abs(limits[at] - one.limit) < SHIFT.of(job, "change") * one.limit
        ]
        if not hardly:
            return limits
        for at in hardly:
            parts[at] = Part(parts[at].weight, shared[at].limit, shared[at].limit)


def _floor(one: _Shared, headroom: float) -> int:
    """Return the least that a pod keeps: what it uses and a headroom, if that is less than now."""
    used = 0 if is_stopped(one.pod) else int(one.use * (1 + headroom))
    return min(max(least_limit(one.pod), used), one.limit)
