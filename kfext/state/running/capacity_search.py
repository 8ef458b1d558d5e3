"""Searches capacity for a new size or new nodes of a job, with the search that places jobs."""

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from enum import Enum

import numpy as np

from kfext.core.elastic import requested_workers, with_workers
from kfext.core.ledger.claims import plan_key, pod_key
from kfext.core.ledger.ports import ports_available, with_host_ports
from kfext.core.lifecycle.capacity import WAITS_FOR_CAPACITY
from kfext.core.lifecycle.cards import slots_for
from kfext.core.lifecycle.network import agents_indistinguishable
from kfext.core.placement.gang import Limits, members_of, present
from kfext.core.placement.place import place
from kfext.core.queue.quota import demand
from kfext.core.settings.table import Settings
from kfext.model.kinds.job_kind import WORKER
from kfext.model.limit import KeptAnyway
from kfext.model.plan import NO_SLOTS, Assignment, Places
from kfext.model.pod import Pod
from kfext.model.quantity import CPU
from kfext.model.verdict import Verdict
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.running_job import RunningJob, leaving
from kfext.state.waiting.queue import Queue

SERVED_SECONDS = 5.0
"""A waiting job is considered for a rescue within this time after its parameter `wait`."""
MAX_SHUT_SECONDS = 300.0
"""New jobs prevent the growth of other jobs for at most this long at a time."""


class GrowthLimit(Enum):
    """How far jobs may scale up: not at all, up to the requested size, or as long as it pays."""

    NONE = "none"
    REQUESTED = "requested"
    PAYING = "paying"


class CapacitySearch:
    """Searches capacity in the ledger. `now` is in epoch seconds.

    `wait` returns, for the settings of a job, the seconds that it waits before others scale down
    for it.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        settings_of: Callable[[TrackedJob], Settings],
        wait: Callable[[Settings], float],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._settings_of = settings_of
        self._wait = wait
        self._shut_since = math.inf
        self._kept_anyway: tuple[int, frozenset[str]] = (-1, frozenset())

    @property
    def version(self) -> int:
        """A number that changes with the claims and the capacity of the cluster."""
        return self._cluster.ledger.version + self._cluster.ledger.gains

    @property
    def gains(self) -> int:
        """A number that changes when capacity is released or a node changes."""
        return self._cluster.ledger.gains

    def limit(self, *, now: float) -> GrowthLimit:
        """Return how far jobs may scale up beside the waiting jobs.

        Jobs do not scale up while a waiting job may still start, but for at most MAX_SHUT_SECONDS:
        a user may submit jobs or edit a job without end.
        """
        limit = self._limit(now)
        if limit is not GrowthLimit.NONE:
            self._shut_since = math.inf
            return limit
        self._shut_since = min(self._shut_since, now)
        long = now - self._shut_since >= MAX_SHUT_SECONDS
        return GrowthLimit.REQUESTED if long else GrowthLimit.NONE

    def _limit(self, now: float) -> GrowthLimit:
        """Return how far jobs may scale up beside the jobs that wait now, for any length of time.

        A new job may start at once or after a rescue, so jobs do not scale up. A job that no rescue
        helped cannot use the free capacity, so jobs may return to their requested size, and scale
        down again when that helps. They scale up further only once the ledger has a reservation
        for the waiting job.
        """
        limit = GrowthLimit.PAYING
        for tracked in self._queue.queued():
            if tracked.not_started_reason not in WAITS_FOR_CAPACITY:
                continue
            settings = self._settings_of(tracked)
            rescued_within = self._wait(settings) + SERVED_SECONDS
            if tracked.queued_seconds(now) < rescued_within:
                return GrowthLimit.NONE
            if self._queue.reservations.due_in(tracked, now=now) > 0:
                limit = GrowthLimit.REQUESTED
        return limit

    def limits(self, tracked: TrackedJob, *, now: float) -> Limits:
        """Return the limits on the candidates of a job at present."""
        return self._queue.limits(tracked, self._settings_of(tracked), now=now)

    def waiting_places(
        self, tracked: TrackedJob, workers: int, *, now: float, gone: Iterable[Hashable] = ()
    ) -> Places | None:
        """Return the places of a waiting job with `workers` workers, or None without capacity.

        `gone`: claims that count as released. The reservation of another job counts, unless this
        job is before it in the queue.
        """
        context = self._queue.context(tracked, now=now)
        reservation = context.reservation if context.may_use_reserved else None
        reserved = reservation.claims if reservation else ()
        members, ledger = members_of(with_workers(tracked.job, workers)), self._cluster.ledger
        ignoring = [*context.held, *context.nodes.claims, *reserved, *gone]
        limits = self.limits(tracked, now=now)
        nodes = place(members, ledger, limits, ignoring=ignoring)
        if isinstance(nodes, Verdict):
            return None
        if not tracked.job.shares_gpus:
            return Places(nodes, NO_SLOTS)
        slots = slots_for(members, nodes, ledger, closed=limits.closed, ignoring=ignoring)
        return None if slots is None else Places(nodes, slots)

    def freed_claims(self, sizes: Mapping[str, int]) -> list[Hashable]:
        """Return the claims that are released when jobs are scaled down to `sizes`, by uid."""
        keys: list[Hashable] = []
        for uid, workers in sizes.items():
            for pod in leaving(self._cluster.pods(uid), workers):
                keys.append(pod_key(pod.uid))
                if pod.replica is not None:
                    keys.append(plan_key(uid, pod.replica))
        return keys

    def most_workers(self, job: RunningJob, least: int, *, up_to: int, now: float) -> int:
        """Return the largest number of workers of a job that fits, at least its size `least`.

        No more than `up_to` are tried, because a search takes longer for a larger job.
        """
        if up_to <= least:
            return least
        # If a number of workers does not fit, a larger number does not fit either.
        more = bisect_left(
            range(least + 1, up_to + 1),
            True,
            key=lambda n: self.more_places(job, n, now=now) is None,
        )
        return least + more

    def more_places(self, job: RunningJob, workers: int, *, now: float) -> Assignment | None:
        """Return the places of all pods of a job with more workers, or None for lack of capacity.

        Its present pods stay on their nodes. A job on nodes outside its limits is not scaled
        up. On the host network, new pods use ports of the job's block. In a cluster with an
        autoscaler, workers beyond the requested size use only nodes that it keeps anyway.
        """
        tracked = job.tracked
        larger, plan = with_workers(tracked.job, workers), tracked.plan
        pods = present(larger, self._cluster.pods(job.uid))
        limits = self.limits(tracked, now=now)
        outside = not limits.allow({pod.home for pod in pods.values() if pod.home})
        if plan is None or outside or self.quota_refuses(job, workers):
            return None
        members = members_of(with_host_ports(larger) if plan.port else larger, pods.values())
        if workers > requested_workers(tracked.job, tracked.state):
            limits = self.growth_limits(tracked, now=now)
        nodes = place(
            members,
            self._cluster.ledger,
            limits,
            bound={key: pod.home for key, pod in pods.items() if pod.home},
            ignoring=[*self._cluster.holds.plan(job.uid), *self._cluster.holds.claims_of(job.uid)],
        )
        if isinstance(nodes, Verdict):
            return None
        if plan.port and (
            agents_indistinguishable(larger, nodes)
            or not ports_available(
                tracked.job, larger, plan, places=nodes, ledger=self._cluster.ledger
            )
        ):
            return None
        return nodes

    def growth_limits(self, tracked: TrackedJob, *, now: float) -> Limits:
        """Return the limits on the candidates of a job that scales up beyond its requested size."""
        limits = self.limits(tracked, now=now)
        if not self._queue.autoscaler:
            return limits
        return replace(limits, on_nodes=(*limits.on_nodes, KeptAnyway(self.kept_anyway())))

    def kept_anyway(self) -> frozenset[str]:
        """Return the nodes with a pod of a job within its requested size.

        An autoscaler must not keep or add a node for growth that no user requested.
        """
        if self._kept_anyway[0] != self.version:
            nodes = (
                pod.home
                for tracked in self._cluster.jobs.values()
                if not tracked.job.suspend
                for pod in self._cluster.pods(tracked.job.uid)
                if pod.home and not (pod.finished or is_growth(tracked, pod))
            )
            self._kept_anyway = self.version, frozenset(nodes)
        return self._kept_anyway[1]

    def growth_keeps_node(self, job: RunningJob) -> bool:
        """Return whether only the growth of a job prevents an autoscaler from removing a node."""
        if not self._queue.autoscaler:
            return False
        growth = (pod for pod in self._cluster.pods(job.uid) if is_growth(job.tracked, pod))
        return not {pod.home for pod in growth if pod.home} <= self.kept_anyway()

    def new_places(
        self, job: RunningJob, *, now: float, doubted: Iterable[str] = ()
    ) -> Assignment | None:
        """Return the new places of a job if it were stopped now, or None without capacity.

        Its present capacity counts as free. `doubted`: nodes to use only as a last resort.
        """
        tracked, pods = job.tracked, self._cluster.pods(job.uid)
        training = (
            with_host_ports(tracked.job) if tracked.plan and tracked.plan.port else tracked.job
        )
        limits = self.limits(tracked, now=now)
        nodes = place(
            members_of(training, pods),
            self._cluster.ledger,
            replace(limits, doubted=limits.doubted.union(doubted)),
            ignoring=[
                *self._cluster.holds.plan(job.uid),
                *(pod_key(pod.uid) for pod in pods),
                *self._cluster.holds.claims_of(job.uid),
            ],
        )
        return None if isinstance(nodes, Verdict) else nodes

    def extent(self, job: RunningJob, nodes: Iterable[str]) -> tuple[int, ...]:
        """Return how many topology domains some nodes span, widest first, and the number of nodes.

        Of two placements of the job, the smaller tuple is better.
        """
        keys, names = self._settings_of(job.tracked).placement.topology_keys, set(nodes)
        known = (self._cluster.ledger.node(name) for name in names)
        labels = [node.labels for node in known if node is not None]
        domains = (len({node_labels.get(key) for node_labels in labels}) for key in keys)
        return (*domains, len(names))

    def fewer_places(self, job: RunningJob, workers: int) -> Assignment:
        """Return the places of the pods that remain after the job is scaled down to `workers`."""
        smaller = with_workers(job.tracked.job, workers)
        return {
            key: pod.home
            for key, pod in present(smaller, self._cluster.pods(job.uid)).items()
            if pod.home
        }

    def below_ceiling(self, job: RunningJob, workers: int, *, present: int, ceiling: float) -> int:
        """Return the largest size with at most the fraction `ceiling` of all CPU requested."""
        ledger = self._cluster.ledger
        total, free = (
            int(np.maximum(amounts, 0).sum())
            for amounts in (ledger.allocatable((CPU,)), ledger.free((CPU,)))
        )
        groups = (group for group in job.tracked.job.groups if group.type == WORKER)
        of_worker = next((group.requests.get(CPU, 0) for group in groups), 0)
        spare = free - (1 - ceiling) * total
        more = workers - present
        return present + (min(more, max(0, int(spare // of_worker))) if of_worker else more)

    def quota_refuses(self, job: RunningJob, workers: int, *, recreated: bool = False) -> str:
        """Return why a quota of the namespace refuses `workers` workers, or "".

        `recreated`: whether all pods of the job would be created again.
        """
        tracked = job.tracked
        quota = self._queue.quotas.view_of(tracked, self._cluster.classes)
        if not quota.quotas:
            return ""
        pods = () if recreated else self._cluster.pods(job.uid)
        demanded = demand(with_workers(tracked.job, workers), pods)
        shortage = quota.shortage(demanded, recreated=recreated)
        return shortage.message if shortage else ""


def is_growth(tracked: TrackedJob, pod: Pod) -> bool:
    """Return whether a pod is a worker beyond the requested size of its job."""
    requested = requested_workers(tracked.job, tracked.state)
    replica = pod.replica
    return replica is not None and replica.type == WORKER.lower() and replica.index >= requested
