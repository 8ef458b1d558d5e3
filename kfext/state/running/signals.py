"""What policies see of running jobs and of their nodes. All CPU is in millicores."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from kfext.model.cpu_state import PodCpu
from kfext.model.policy import PolicyChoice
from kfext.model.qos import QoS


@dataclass(frozen=True, slots=True)
class Sharer:
    """A job on a node. `came`: seconds since the epoch. `work`: core-seconds in all.

    `most`: the cores that it can use.
    """

    uid: str
    came: float
    work: float
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class PodSignal:
    """A bound pod, with the resources of its training container.

    `component`: its replica type, e.g. worker.
    `request`, `limit`: now; a limit of None: unlimited.
    `allocated`: the request that its kubelet has allocated; None: unknown.
    `user`: what the user wrote; None: kfext never changed it.
    `use`: the mean over the last interval; None: unknown.
    `created`: in seconds since the epoch.
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
        """What its user wrote."""
        return self.user or PodCpu(self.request, self.limit)

    @property
    def extra(self) -> int:
        """What kube-scheduler counts for it beyond the request that its user wrote."""
        return max(self.request, self.allocated or 0) - self.requested.request

    @property
    def resized(self) -> bool:
        """Whether it has other CPU than its user wrote."""
        return self.requested != (self.request, self.limit)


@dataclass(frozen=True, slots=True)
class JobSignal:
    """A job that opted in to at least one policy.

    `policies`: by name, the policies that may decide on it. `disabled`: the policies that leave it
        alone.
    `in_flight`: whether sizes are being written or set, a pod is missing, or it is paused.
    `paused`: whether nothing is tried on its CPU for now, after a failure.
    `whole`: whether all of its pods exist, and each has ended or runs.
    `settling`: whether its figures may be older than the last change of its sizes.
    `rate`: its steps a second, None without reported steps.
    `left`: the core-seconds to its end, infinite while unknown, None for a job that does not show
        how far it is.
    `followed`: for how many seconds this controller has followed it.
    `done`: the core-seconds of the steps that it has made.
    `young`: whether it has just begun, so that its progress cannot be known yet.
    `unread`: why its progress is unknown; empty if it is known, or if it is too early to say.
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
    left: float | None = None
    followed: float = math.inf
    done: float = 0.0
    young: bool = False
    unread: str = ""

    @property
    def known(self) -> bool:
        """Whether it is known how much of its work is left."""
        return self.left is not None and math.isfinite(self.left)

    @property
    def began(self) -> float:
        """When its first pod was created, in seconds since the epoch."""
        return min((pod.created for pod in self.pods), default=0.0)

    @property
    def nodes(self) -> list[str]:
        """The nodes of its pods, in the order of their names."""
        return sorted({pod.node for pod in self.pods})

    @property
    def use(self) -> int | None:
        """What its pods use together, or None with a pod of unknown use."""
        return use_of(self.pods)

    @property
    def resized(self) -> bool:
        """Whether its pods have other CPU than its user wrote."""
        return any(pod.resized for pod in self.pods)

    def on(self, node: str) -> tuple[PodSignal, ...]:
        """Return its pods on a node, always in the same order."""
        return tuple(sorted((pod for pod in self.pods if pod.node == node), key=attrgetter("uid")))

    def sharer(self, node: str) -> Sharer:
        """Return its part in the CPU of a node under equal shares."""
        here = self.on(node)
        limits = [pod.requested.limit for pod in here]
        return Sharer(
            uid=self.uid,
            came=self.began,
            work=(math.inf if self.left is None else self.left + self.done)
            * len(here)
            / max(1, len(self.pods)),
            most=math.inf if None in limits else sum(limit or 0 for limit in limits) / 1000,
        )


@dataclass(frozen=True, slots=True)
class NodeSignal:
    """A node: its allocatable CPU, and the use of pods that belong to no job of the signals.

    `free`: the allocatable CPU less all requests, as users wrote them.
    `crowded`: whether its pods use all of it, or did when they were last measured.
    `awaited`: whether a pending pod would fit without the boosts of kfext.
    `gone`: the jobs that have ended and under equal shares would have shared it with a job there.
    """

    allocatable: int
    others: int = 0
    free: int = 0
    crowded: bool = False
    awaited: bool = False
    gone: tuple[Sharer, ...] = ()


@dataclass(frozen=True, slots=True)
class Signals:
    """One moment: the nodes by name, and the jobs that opted in.

    `headroom`: by namespace with a quota, how much more CPU its pods may request.
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
    """Return what pods use together, or None with a pod of unknown use."""
    uses = [pod.use for pod in pods]
    return None if None in uses else sum(use for use in uses if use is not None)
