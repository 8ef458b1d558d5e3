"""What the checker must have seen before to judge what it sees now."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from e2e.soak.facts import COLOCATION, Cluster, Gang

Object = dict[str, Any]
_BY_OTHERS = {"DeletionByTaintManager", "DeletionByPodGC", "PreemptionByScheduler"}
"""Reasons of the condition DisruptionTarget: the pod's node was tainted, or is gone, or
kube-scheduler took the pod away for one of a higher priority."""


@dataclass
class Memory:
    """What was seen of jobs, by uid.

    `whole` are those that ran with all their pods since they last started; `disrupted` those that
    lost a pod to their node's end or to others; `colocation` is every value a job was seen with;
    `told` is how long each took from first seen held to a reason. `last_created` is when a pod of
    any job was first seen; `create_timeout` for how long none must come before a gang gives up.
    Times are those of the clusters.
    """

    create_timeout: float
    whole: set[str] = field(default_factory=set)
    disrupted: set[str] = field(default_factory=set)
    colocation: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    last_created: float = 0.0
    first_held: dict[str, float] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def pod(self, raw: Object) -> None:
        """Take in a state of a pod, so that none is missed however short it was."""
        for one in raw.get("status", {}).get("conditions", ()):
            if one["type"] == "DisruptionTarget" and one.get("reason") in _BY_OTHERS:
                owners = raw["metadata"].get("ownerReferences", ())
                self.disrupted.update(owner["uid"] for owner in owners)

    def cluster(self, cluster: Cluster) -> None:
        """Take in the cluster as it stands."""
        pods = {pod.uid for pod in cluster.pods if pod.owner}
        if not pods <= self._known:
            self.last_created = cluster.at
        self._known = pods
        for uid, gang in cluster.gangs.items():
            self.colocation[uid].add(gang.annotations.get(COLOCATION, "preferred"))
            if gang.suspended:
                self.whole.discard(uid)
            elif _is_whole(gang):
                self.whole.add(uid)
            self._time_to_a_reason(cluster.at, gang)

    def _time_to_a_reason(self, at: float, gang: Gang) -> None:
        since = self.first_held.get(gang.uid)
        if since is None and gang.held:
            since = self.first_held[gang.uid] = at
        if since is not None and gang.view.get("reason"):
            self.told.setdefault(gang.uid, at - since)


def _is_whole(gang: Gang) -> bool:
    return sum(bool(pod.node) for pod in gang.live) >= gang.size
