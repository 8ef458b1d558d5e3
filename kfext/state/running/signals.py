"""Signals: what policies know about running jobs and their nodes. CPU is in millicores."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from kfext.model.cpu_state import PodCpu
from kfext.model.policy import PolicyChoice
from kfext.model.qos import QoS


@dataclass(frozen=True, slots=True)
class Sharer:
    """A job that shares the CPU of a node.

    `began`: in epoch seconds. `work`: its total core-seconds. `most`: the most cores it can use.
    """

    uid: str
    began: float
    work: float
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class PodSignal:
    """A bound pod, with the CPU of its training container.

    `component`: its replica type, such as worker.
    `request`, `limit`: the values in its spec. A limit of None means unlimited.
    `allocated`: the request that its kubelet has allocated. None means unknown.
    `user`: the CPU that the user wrote. None means that kfext never changed it.
    `use`: its mean use over the last interval. None means unknown.
    `created`: its creation time in epoch seconds.
    """

    uid: str
    component: str
    node: str
    request: int
    limit: int | None = None
    allocated: int | None = None
    user: PodCpu | None = None
    use: int | None = None
    qos: QoS = QoS.BURSTABLE
    created: float = 0.0

    @property
    def requested(self) -> PodCpu:
        """The CPU that its user wrote."""
        return self.user or PodCpu(self.request, self.limit)

    @property
    def extra(self) -> int:
        """Its boost: the CPU that kube-scheduler counts beyond the user's request."""
        return max(self.request, self.allocated or 0) - self.requested.request

    @property
    def resized(self) -> bool:
        """Whether its CPU differs from what its user wrote."""
        return self.requested != (self.request, self.limit)


@dataclass(frozen=True, slots=True)
class JobSignal:
    """A job that opted in to at least one policy.

    `policies`: the policies that may decide on it, by name.
    `disabled`: the names of the policies that are disabled for it.
    `in_flight`: whether sizes are being written or set, a pod is missing, or it is paused.
    `paused`: whether the back-off after a failed change of its CPU lasts.
    `whole`: whether all of its pods exist, and each runs or has ended.
    `settling`: whether its measurements may be older than the last change of its CPU.
    `rate`: its steps a second; None means that it reports no steps.
    `remaining`: the core-seconds to its end; infinity means unknown, None no progress.
    `followed`: the seconds since this controller began to follow it.
    `done`: the core-seconds of its completed steps.
    `young`: whether it began so recently that its progress cannot be known yet.
    `unread`: why its progress is unknown; empty if it is known or not expected yet.
    """

    uid: str
    namespace: str = ""
    pods: tuple[PodSignal, ...] = ()
    policies: Mapping[str, PolicyChoice] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    in_flight: bool = False
    paused: bool = False
    whole: bool = True
    settling: bool = False
    rate: float | None = None
    remaining: float | None = None
    followed: float = math.inf
    done: float = 0.0
    young: bool = False
    unread: str = ""

    @property
    def known(self) -> bool:
        """Whether its remaining work is known."""
        return self.remaining is not None and math.isfinite(self.remaining)

    @property
    def began(self) -> float:
        """The creation time of its first pod, in epoch seconds."""
        return min((pod.created for pod in self.pods), default=0.0)

    @property
    def nodes(self) -> list[str]:
        """The nodes of its pods, ordered by name."""
        return sorted({pod.node for pod in self.pods})

    @property
    def use(self) -> int | None:
        """The CPU use of its pods; None means that the use of a pod is unknown."""
        return use_of(self.pods)

    @property
    def resized(self) -> bool:
        """Whether the CPU of any pod differs from what its user wrote."""
        return any(pod.resized for pod in self.pods)

    def on(self, node: str) -> tuple[PodSignal, ...]:
        """Return its pods on a node, ordered by uid."""
        return tuple(sorted((pod for pod in self.pods if pod.node == node), key=attrgetter("uid")))

    def sharer(self, node: str) -> Sharer:
        """Return the job as a sharer of a node, with the fraction of its work that runs there."""
        here = self.on(node)
        limits = [pod.requested.limit for pod in here]
        return Sharer(
            uid=self.uid,
            began=self.began,
            work=(math.inf if self.remaining is None else self.remaining + self.done)
            * len(here)
            / max(1, len(self.pods)),
            most=math.inf if None in limits else sum(limit or 0 for limit in limits) / 1000,
        )


@dataclass(frozen=True, slots=True)
class NodeSignal:
    """A node: its allocatable CPU, and in `others` the CPU use of pods outside the signals.

    `free`: the allocatable CPU less all requests, as users wrote them.
    `crowded`: whether its pods used nearly all of its CPU when they were last measured.
    `awaited`: whether a pending pod would fit here without the boosts of kfext.
    `gone`: the ended jobs that would still run beside a present job under equal shares.
    """

    allocatable: int
    others: int = 0
    free: int = 0
    crowded: bool = False
    awaited: bool = False
    gone: tuple[Sharer, ...] = ()


@dataclass(frozen=True, slots=True)
class Signals:
    """The nodes by name, and the jobs that opted in, at one time.

    `headroom`: the CPU that pods may request in addition, by namespace with a quota.
    """

    nodes: Mapping[str, NodeSignal]
    jobs: tuple[JobSignal, ...]
    headroom: Mapping[str, int] = field(default_factory=dict)

    @property
    def pod_limits(self) -> frozenset[tuple[str, int | None]]:
        """The uids of all pods of the jobs, with their CPU limits."""
        return frozenset((pod.uid, pod.limit) for job in self.jobs for pod in job.pods)

    def on(self, node: str) -> list[JobSignal]:
        """Return the jobs with pods on a node."""
        return [job for job in self.jobs if job.on(node)]


def use_of(pods: Iterable[PodSignal]) -> int | None:
    """Return the CPU use of pods; None means that the use of a pod is unknown."""
    uses = [pod.use for pod in pods]
    return None if None in uses else sum(use for use in uses if use is not None)
