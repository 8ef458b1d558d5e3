"""The checker's memory: what it needs of earlier states to check the current state."""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from e2e.soak.facts import COLOCATION, WRITE_REFUSED, Amounts, Cluster, Gang, Pod, larger
from e2e.soak.manifests import Sizes
from e2e.soak.reading import pod_of
from e2e.soak.stops import Stops

Object = dict[str, Any]
_FOREIGN_DISRUPTIONS = {
    *("DeletionByTaintManager", "DeletionByPodGC", "PreemptionByScheduler"),
    "EvictionByEvictionAPI",
}
"""Reasons of the condition DisruptionTarget: the pod's node was tainted or is gone, kube-scheduler
preempted the pod, or a person evicted it."""
_RETRY_SECONDS = 345.0
"""kfext retries a refused write after 5 minutes, and reports the refusal meanwhile; the rest is
slack for a busy machine."""
_MAX_STARTS = 32


@dataclass
class Memory:
    """The history of jobs, by uid.

    `whole`: jobs that ran with all their pods since they last started. `disrupted`: jobs with a pod
    that lost its node, or that others evicted or preempted. `colocation`: all values that a job
    had. `delays`: seconds from when a job was first seen held until it had a reason. `starts`: when
    a job was seen running after it was seen suspended. `since`: when it last began to run.
    `newest`: when a new pod of it was last seen. `largest_requests`: the largest request of its
    pods, by type. `refused`: when a namespace was last seen to refuse writes. `sizes`, `stops`: the
    changes of size, and the stops by kfext. `create_timeout`: seconds without a new pod after which
    a gang's attempt ends. Times come from the clusters.
    """

    create_timeout: float
    whole: set[str] = field(default_factory=set)
    disrupted: set[str] = field(default_factory=set)
    colocation: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    first_held: dict[str, float] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)
    starts: dict[str, deque[float]] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    newest: dict[str, float] = field(default_factory=dict)
    largest_requests: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    stops: Stops = field(default_factory=Stops)
    _known: set[str] = field(default_factory=set)
    _suspended: set[str] = field(default_factory=set)

    def record_pod(self, raw: Object) -> None:
        """Record a state of a pod, so that no pod is missed however briefly it existed."""
        self._record_request(pod_of(raw))
        for condition in raw.get("status", {}).get("conditions", ()):
            if (
                condition["type"] == "DisruptionTarget"
                and condition.get("reason") in _FOREIGN_DISRUPTIONS
            ):
                owners = raw["metadata"].get("ownerReferences", ())
                self.disrupted.update(owner["uid"] for owner in owners)

    def record_cluster(self, cluster: Cluster) -> None:
        self.refused |= dict.fromkeys(cluster.refusing, cluster.at)
        for uid, gang in cluster.gangs.items():
            self.colocation[uid].add(gang.annotations.get(COLOCATION, "preferred"))
            self._record_pods(gang, cluster.at)
            self._record_start(gang, cluster.at)
            self.sizes.record(gang, cluster.at, saved_at=cluster.saved_at)
            self._record_reason(cluster.at, gang)
        self.stops.record(cluster, refused=self.recently_refused(cluster))
        self._known = {pod.uid for pod in cluster.pods}

    def largest_request(self, gang: Gang, kind: str) -> Amounts:
        """Return the largest request that a job's pods of a type had, as raised by admission."""
        return self.largest_requests.get((gang.uid, kind), {})

    def seconds_without_new_pod(self, gang: Gang, cluster: Cluster) -> float:
        """Return the seconds since the last new pod of a gang, or of a gang that began before it.

        The operator creates the pods of one job after the other. Gangs that were whole once do not
        count, nor do foreign pods.
        """
        began = self.since.get(gang.uid, cluster.at)
        before = (
            uid
            for uid, since in self.since.items()
            if since <= began and uid not in self.whole and uid in cluster.gangs
        )
        return cluster.at - max([began, *(self.newest.get(uid, 0.0) for uid in before)])

    def excused(self, gang: Gang, cluster: Cluster) -> bool:
        """Return whether refused writes keep kfext from handling a gang."""
        reported = gang.view.get("reason") == WRITE_REFUSED
        recently = gang.namespace in self.recently_refused(cluster)
        return gang.namespace in cluster.refusing or (reported and recently)

    def recently_refused(self, cluster: Cluster) -> set[str]:
        """Return the namespaces where kfext may not yet have retried a refused write."""
        since = self.refused.items()
        return {name for name, at in since if cluster.at - at < _RETRY_SECONDS}

    def _record_pods(self, gang: Gang, at: float) -> None:
        if any(pod.uid not in self._known for pod in gang.pods):
            self.newest[gang.uid] = at
        for pod in gang.live:
            self._record_request(pod)

    def _record_request(self, pod: Pod) -> None:
        key = (pod.owner, pod.replica[0])
        self.largest_requests[key] = larger(self.largest_requests.get(key, {}), pod.requested)

    def _record_start(self, gang: Gang, at: float) -> None:
        if gang.suspended:
            self.whole.discard(gang.uid)
            self.since.pop(gang.uid, None)
            self._suspended.add(gang.uid)
            return
        self.since.setdefault(gang.uid, at)
        if gang.uid in self._suspended:
            self._suspended.discard(gang.uid)
            self.starts.setdefault(gang.uid, deque(maxlen=_MAX_STARTS)).append(at)
        if sum(bool(pod.node) for pod in gang.live) >= gang.size:
            self.whole.add(gang.uid)

    def _record_reason(self, at: float, gang: Gang) -> None:
        since = self.first_held.get(gang.uid)
        if since is None and gang.held:
            since = self.first_held[gang.uid] = at
        if since is not None and gang.view.get("reason"):
            self.delays.setdefault(gang.uid, at - since)
