"""Signals: the policies' view of running jobs and their nodes. CPU is in millicores."""

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

    `began`: in epoch seconds. `work`: its total core-seconds. `most`: the cores that it can use.
    """

    uid: str
    began: float
    work: float
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class PodSignal:
    """A bound pod, with the resources of its training container.

    `component`: its replica type, such as worker.
    `request`, `limit`: the present values. A limit of None means unlimited.
    `allocated`: the request that its kubelet has allocated. None means unknown.
    `user`: the CPU that the user wrote. None means that kfext never changed it.
    `use`: the mean over the last interval. None means unknown.
    `created`: in epoch seconds.
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
        """The CPU that kube-scheduler counts beyond the request that its user wrote."""
        return max(self.request, self.allocated or 0) - self.requested.request

    @property
    def resized(self) -> bool:
        """Whether it has other CPU than its user wrote."""
        return self.requested != (self.request, self.limit)


@dataclass(frozen=True, slots=True)
class JobSignal:
    """A job that opted in to at least one policy.

    `policies`: by name, the policies that may decide on it. `disabled`: the names of policies.
    `in_flight`: whether sizes are being written or set, a pod is missing, or it is paused.
    `paused`: whether changes of its CPU pause after a failure.
    `whole`: whether all of its pods exist, and each has ended or runs.
    `settling`: whether its measurements may be older than the last change of its sizes.
    `rate`: its steps a second, None without reported steps.
    `remaining`: the core-seconds to its end, infinite while unknown, None without progress.
    `followed`: the seconds since this controller began to follow it.
    `done`: the core-seconds of its completed steps.
    `young`: whether it has just begun, so that its progress cannot be known yet.
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
        """The nodes of its pods, in the order of their names."""
        return sorted({pod.node for pod in self.pods})

    @property
    def use(self) -> int | None:
        """The CPU use of its pods, None with a pod of unknown use."""
        return use_of(self.pods)

    @property
    def resized(self) -> bool:
        """Whether any pod has other CPU than its user wrote."""
        return any(pod.resized for pod in self.pods)

    def on(self, node: str) -> tuple[PodSignal, ...]:
        """Return its pods on a node, in the order of their uids."""
        return tuple(sorted((pod for pod in self.pods if pod.node == node), key=attrgetter("uid")))

    def sharer(self, node: str) -> Sharer:
        """Return it as a sharer of a node, with its work in proportion to its pods there."""
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
    `crowded`: whether its pods use all of its CPU, or did when they were last measured.
    `awaited`: whether a pending pod would fit without the boosts of kfext.
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
    """The nodes by name, and the jobs that opted in, at a moment.

    `headroom`: by namespace with a quota, the CPU that its pods may request in addition.
    """

    nodes: Mapping[str, NodeSignal]
    jobs: tuple[JobSignal, ...]
    headroom: Mapping[str, int] = field(default_factory=dict)

    @property
    def company(self) -> frozenset[tuple[str, int | None]]:
        """The uids of all pods, with their limits."""
        return frozenset((pod.uid, pod.limit) for job in self.jobs for pod in job.pods)

    def on(self, node: str) -> list[JobSignal]:
        """Return the jobs with pods on a node."""
        return [job for job in self.jobs if job.on(node)]


def use_of(pods: Iterable[PodSignal]) -> int | None:
    """Return the CPU use of pods, or None with a pod of unknown use."""
    uses = [pod.use for pod in pods]
    return None if None in uses else sum(use for use in uses if use is not None)
