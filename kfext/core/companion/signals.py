"""What policies see of running jobs and of their nodes. All CPU is in millicores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.core.progress.reported import GrowthState, Reported
from kfext.model.policy import PolicyChoice
from kfext.model.qos import QoS


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job has used, and what it got below or above an equal share; in core-seconds.

    `lost`: what it got less than an equal share. `lent`: what it got less for jobs that end before
    it, which leave it more once they have ended. `borrowed`: what it got more from jobs that end
    after it.
    """

    used: float = 0.0
    lost: float = 0.0
    lent: float = 0.0
    borrowed: float = 0.0

    def after(
        self, *, use: int, equal: int, cap: int | None, seconds: float, lends: bool = False
    ) -> "Budget":
        """Return the budget after an interval on a node; CPU in millicores.

        `equal`: what the job would have without any caps on the node. `cap`: the sum of its limits
        there, None without a cap of kfext's. Only CPU that a cap took is lost: a job that uses less
        than its cap wanted no more. `lends`: whether the CPU goes to a job that ends first, so it
        is lent and not lost.
        """
        stopped = cap is not None and use >= STOPPED * cap
        below = (max(0, equal - use) if stopped else 0) * seconds / 1000
        above = max(0, use - equal) * seconds / 1000
        return Budget(
            used=self.used + use * seconds / 1000,
            lost=self.lost + (0 if lends else below),
            lent=self.lent + (below if lends else 0),
            borrowed=self.borrowed + (above if lends else 0),
        )

    def spent(self, share: float) -> bool:
        """Return whether the job has lost more than a share of what it has used."""
        return self.lost > share * self.used

    def may_lend(self, share: float, *, left: float) -> bool:
        """Return whether the job has lent less than a share of all its work; `left`: to its end."""
        return self.lent < share * (self.used + left)


STOPPED = 0.95
"""A pod or a job counts as stopped by its limit from this share of the limit."""


@dataclass(frozen=True, slots=True)
class PodSignal:
    """A bound pod, with the resources of its training container.

    `component`: its replica type, e.g. worker.
    `limit`: its limit now. `user_limit`: the limit that the user wrote. None: unlimited.
    `use`: the mean over the last interval; None: unknown.
    `created`: in seconds since the epoch.
    """

    uid: str
    component: str
    node: str
    request: int
    limit: int | None = None
    user_limit: int | None = None
    use: int | None = None
    qos: QoS = QoS.BURSTABLE
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class JobSignal:
    """A job that opted in to at least one policy.

    `policies`: by name, the policies that may decide on it. `rests`: the policies that leave it
        alone.
    `by`: the policies that account for its limits, where these are not the user's.
    `in_flight`: whether sizes are being written or set, or a pod is missing or not measured.
    `whole`: whether all of its pods exist, and each has ended or runs.
    `settling`: whether its figures may be older than the last change of its sizes.
    `reported`: the progress that its log shows, or None.
    `rate`: its steps a second, None without reported steps.
    `left`: the core-seconds to its end, infinite while unknown, None for a job that does not show
        how far it is.
    `peak`: the most that it was seen to use on a node, in millicores.
    `unread`: why its progress is unknown; empty if it is known, or if it is too early to say.
    """

    uid: str
    pods: tuple[PodSignal, ...] = ()
    policies: Mapping[str, PolicyChoice] = field(default_factory=dict)
    rests: frozenset[str] = frozenset()
    by: frozenset[str] = frozenset()
    in_flight: bool = False
    whole: bool = True
    settling: bool = False
    reported: Reported | None = None
    rate: float | None = None
    left: float | None = None
    peak: int = 0
    unread: str = ""
    budget: Budget = field(default_factory=Budget)

    @property
    def state(self) -> GrowthState:
        """The list of FlowCon that it is on; a job without a known metric is new."""
        return (self.reported.state if self.reported else None) or GrowthState.NEW

    @property
    def growth(self) -> float | None:
        """Its growth efficiency.

        None: unknown, or its policies wait for two windows that begin after the start of the
        controller.
        """
        return self.reported.growth if self.reported else None

    @property
    def nodes(self) -> list[str]:
        """The nodes of its pods, in the order of their names."""
        return sorted({pod.node for pod in self.pods})

    @property
    def use(self) -> int | None:
        """What its pods use together, or None with a pod of unknown use."""
        return use_of(self.pods)

    @property
    def fair_left(self) -> float:
        """What it would still need if it had always had an equal share."""
        if self.left is None:
            return math.inf
        return self.left + self.budget.borrowed - self.budget.lent

    def ends_before(self, other: "JobSignal") -> bool:
        """Return whether it ends before another job if both have equal shares.

        A job that does not show how far it is counts as endless.
        """
        if self.left is None:
            return other.left is None
        return self.fair_left < other.fair_left

    def on(self, node: str) -> tuple[PodSignal, ...]:
        """Return its pods on a node, always in the same order."""
        return tuple(sorted((pod for pod in self.pods if pod.node == node), key=_uid))


@dataclass(frozen=True, slots=True)
class NodeSignal:
    """A node: its allocatable CPU, and the use of pods that belong to no job of the signals."""

    allocatable: int
    others: int = 0


@dataclass(frozen=True, slots=True)
class Signals:
    """One moment: the nodes by name, and the jobs that opted in."""

    nodes: Mapping[str, NodeSignal]
    jobs: tuple[JobSignal, ...]

    @property
    def company(self) -> frozenset[tuple[str, int | None]]:
        """The uids of all pods, with their limits."""
        return frozenset((pod.uid, pod.limit) for job in self.jobs for pod in job.pods)

    def job(self, uid: str) -> JobSignal | None:
        """Return a job, or None after it has gone."""
        return next((job for job in self.jobs if job.uid == uid), None)

    def open_limit(self, pod: PodSignal) -> int:
        """Return the limit that leaves a pod unrestricted: the user's, else the whole node.

        Kubernetes can change a limit in place but never remove it.
        """
        return self.nodes[pod.node].allocatable if pod.user_limit is None else pod.user_limit


def use_of(pods: tuple[PodSignal, ...]) -> int | None:
    """Return what pods use together, or None with a pod of unknown use."""
    uses = [pod.use for pod in pods]
    return None if None in uses else sum(use for use in uses if use is not None)


def _uid(pod: PodSignal) -> str:
    return pod.uid
