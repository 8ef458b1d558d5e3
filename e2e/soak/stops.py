"""The rules on jobs that kfext stops for others, on drained nodes, and on requests for nodes.

`Stops` records the running jobs that kfext stopped, with the circumstances. A stop that begins and
ends between two checks is not seen.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from e2e.soak.facts import (
    BY_FORCE,
    BY_PERSON,
    COLOCATION,
    FORGED,
    POOL,
    PREEMPT,
    SUSPENDED,
    Cluster,
    Gang,
    Node,
    Replica,
)
from e2e.soak.manifests import HEEDED_SECONDS, PRIORITIES

if TYPE_CHECKING:
    from e2e.soak.memory import Memory

Findings = dict[str, str]
HOLD_SECONDS = 300.0
"""kfext holds the capacity of stopped jobs for the waiting job for at least this long."""
MAX_PLACEHOLDERS = 500


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of a running job by kfext, first seen at `at`.

    `unasked`: whether the job had not opted in. `drained`: the value of the taint of a drained node
    that it was on, or None. `waiting`: the uid of the job that it was stopped for, or empty.
    `own`, `other`: the priorities of both jobs; `other` is None for an unknown job. `places`: the
    nodes where the waiting job should start. `pods_there`: the pods on these nodes. `wished`: what
    people wanted for the waiting job then.
    """

    at: float
    unasked: bool
    drained: str | None
    waiting: str
    own: int
    other: int | None
    places: frozenset[str]
    pods_there: frozenset[str]
    wished: object

    def __str__(self) -> str:
        return f"it was stopped at {self.at:.0f} s for {self.waiting or 'no job'}"

    @property
    def is_wrong(self) -> bool:
        """Whether kfext was not allowed to stop it, whichever job it was for."""
        return self.unasked and (self.drained != BY_FORCE or bool(self.waiting))

    @property
    def has_no_cause(self) -> bool:
        """Whether neither a drain nor a job of higher priority explains it."""
        if self.waiting:
            return self.other is not None and self.other <= self.own
        return self.drained is None


@dataclass
class Stops:
    """The stops, drains and preempted pods so far; `done` counts the stops by cause.

    `by_job`: all stops of a job, by uid. `pending`: the last stop, while the waiting job has not
    started and only kfext can be the reason. `onto_drained`: replicas that kfext planned onto a
    drained node. `broken`: pods of gangs that kube-scheduler preempted for a gang of kfext.
    """

    by_job: dict[str, list[Stop]] = field(default_factory=lambda: defaultdict(list))
    pending: dict[str, Stop] = field(default_factory=dict)
    onto_drained: Findings = field(default_factory=dict)
    broken: Findings = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    _ran: dict[str, Gang] = field(default_factory=dict)
    _whole_since: dict[str, float] = field(default_factory=dict)
    _drained_since: dict[str, float] = field(default_factory=dict)
    _last_drained: dict[str, tuple[float, str]] = field(default_factory=dict)
    _plans: dict[str, dict[Replica, str]] = field(default_factory=dict)
    _suspect: dict[tuple[str, str], str] = field(default_factory=dict)
    _pinned: dict[str, str] = field(default_factory=dict)

    def record(self, cluster: Cluster, *, refused: Collection[str]) -> None:
        """Record the state of the cluster; `refused`: namespaces with a recent refused write."""
        drained = {n.name: n.drained for n in cluster.nodes.values() if n.drained is not None}
        self._last_drained |= {name: (cluster.at, value) for name, value in drained.items()}
        since = self._drained_since
        self._drained_since = {name: since.get(name, cluster.at) for name in drained}
        # A node may have been uncordoned just before: nodes and jobs come by separate watches.
        suspect, self._suspect = self._suspect.items(), {}
        self.onto_drained |= {uid: message for (uid, node), message in suspect if node in drained}
        for gang in cluster.gangs.values():
            self._record_stop(gang, cluster)
            self._record_plan(gang, cluster)
        self._record_preempted(cluster)
        whole = {gang.uid: gang for gang in cluster.gangs.values() if _runs_whole(gang)}
        since = self._whole_since
        self._whole_since = {uid: since.get(uid, cluster.at) for uid in whole}
        # kube-scheduler may bind the last pod while kfext writes that the wait was too long.
        self._ran = {
            uid: gang
            for uid, gang in whole.items()
            if cluster.at - self._whole_since[uid] > HEEDED_SECONDS
        }
        self.pending = {
            uid: stop
            for uid, stop in self.pending.items()
            if _is_in_vain(uid, stop, cluster, excused={*refused, *cluster.limited})
        }

    def _record_stop(self, gang: Gang, cluster: Cluster) -> None:
        """Record a stop by kfext, but no suspension by a person, and no restart at a new size."""
        before = self._ran.get(gang.uid)
        by_others = gang.annotations.get(BY_PERSON) == SUSPENDED or FORGED in gang.annotations
        if before is None or not (gang.suspended and gang.held) or by_others or gang.over:
            return
        if dict(gang.sizes) != dict(before.sizes):
            return
        if not all(_keeps_pods(cluster.nodes.get(pod.node)) for pod in before.pods if pod.node):
            return  # the job may have lost its pods with their node
        stop_state = gang.state.get("stop") or {}
        waiting = str(stop_state.get("for", ""))
        other = cluster.gangs.get(waiting)
        places = frozenset(stop_state.get("nodes", ()))
        recent = (self._last_drained.get(pod.node, (-math.inf, "")) for pod in before.pods)
        values = [value for at, value in recent if cluster.at - at <= HEEDED_SECONDS]
        stop = Stop(
            cluster.at,
            unasked=gang.annotations.get(PREEMPT, "off") == "off",
            drained=max(values, default=None),
            waiting=waiting,
            own=priority(gang),
            other=priority(other) if other else None,
            places=places,
            pods_there=frozenset(pod.uid for pod in cluster.pods if pod.node in places),
            wished=_wishes(other) if other else None,
        )
        self.by_job[gang.uid].append(stop)
        self.done["preempted" if waiting else "drained" if values else "unexplained"] += 1
        if waiting:
            self.pending[gang.uid] = stop

    def _record_plan(self, gang: Gang, cluster: Cluster) -> None:
        """Record the replicas that a plan newly puts on a drained node where they are not yet.

        A plan stays on a job that a person suspends, and is renewed once its pods exist again.
        """
        plan = gang.plan if gang.handled else {}
        before, self._plans[gang.uid] = self._plans.get(gang.uid, {}), plan
        placed = {(pod.replica, pod.node) for pod in gang.pods}
        for replica, node in plan.items() - before.items() - placed:
            duration = cluster.at - self._drained_since.get(node, cluster.at)
            if duration > HEEDED_SECONDS:
                message = f"{gang}: {replica} was planned onto {node}, drained for {duration:.0f} s"
                self._suspect[gang.uid, node] = message

    def _record_preempted(self, cluster: Cluster) -> None:
        """Record the pods that kfext pinned, and the pods preempted for such a pod."""
        for gang in cluster.gangs.values():
            if gang.handled and not gang.escaped:
                plan = gang.plan
                pinned = (pod for pod in gang.live if pod.pins == {plan.get(pod.replica)})
                self._pinned |= {pod.uid: str(gang) for pod in pinned if not pod.gates}
        for victim, other in cluster.preempted:
            if {victim, other} <= self._pinned.keys():
                jobs = self._pinned[victim], self._pinned[other]
                self.broken[victim] = "a pod of {} was preempted for {}".format(*jobs)


def priority(gang: Gang) -> int:
    """Return the priority of a job: the highest priority of its pods."""
    specs = (spec for kind, spec in gang.templates.items() if gang.sizes.get(kind))
    named = {str(spec.get("priorityClassName")) for spec in specs} & PRIORITIES.keys()
    return max((PRIORITIES[name] for name in named), default=0)


def _runs_whole(gang: Gang) -> bool:
    bound = sum(bool(pod.node) and not pod.over for pod in gang.live)
    return gang.handled and not (gang.suspended or gang.escaped) and bound == gang.size


def _keeps_pods(node: Node | None) -> bool:
    """Return whether the pods on a node stay there unless kfext stops them."""
    return node is not None and (node.open or node.drained is not None)


def _wishes(gang: Gang) -> object:
    keys = (COLOCATION, BY_PERSON, "kfext.dev/elastic")
    return dict(gang.sizes), [gang.annotations.get(key) for key in keys]


def _is_in_vain(uid: str, stop: Stop, cluster: Cluster, *, excused: Collection[str]) -> bool:
    """Return whether a job is stopped for a job that does not start, though nothing has changed.

    A change is also a removed or closed node, and a new foreign pod on one of the nodes.
    `excused`: namespaces in which kfext may be unable to start jobs.
    """
    gang, waiting = cluster.gangs.get(uid), cluster.gangs.get(stop.waiting)
    if gang is None or waiting is None:
        return False
    stopped = gang.handled and gang.suspended and gang.held
    waits = waiting.handled and waiting.suspended and waiting.held
    if not (stopped and waits) or waiting.namespace in excused or _wishes(waiting) != stop.wished:
        return False
    if not stop.places <= {node.name for node in cluster.nodes.values() if node.open}:
        return False
    return not any(
        pod.node in stop.places and pod.uid not in stop.pods_there
        for pod in cluster.pods
        if not (pod.owner in cluster.gangs and cluster.gangs[pod.owner].handled)
    )


# --- the rules ------------------------------------------------------------------------------------


def stopped_unasked(cluster: Cluster, memory: "Memory") -> Findings:
    """No job is stopped that did not opt in, except on a node that is drained by force."""
    stops = _stops(cluster, memory)
    return {gang.uid: f"{gang} did not opt in, {stop}" for gang, stop in stops if stop.is_wrong}


def stopped_without_cause(cluster: Cluster, memory: "Memory") -> Findings:
    """No job is stopped for a job of equal or lower priority, or without a cause."""
    stops = _stops(cluster, memory)
    return {gang.uid: f"{gang}: {stop}" for gang, stop in stops if stop.has_no_cause}


def stopped_in_vain(cluster: Cluster, memory: "Memory") -> Findings:
    """Either a stopped job or the job that it was stopped for starts in the end."""
    return {
        uid: f"{cluster.gangs[uid]} was stopped for {cluster.gangs[stop.waiting]}, and both wait"
        for uid, stop in memory.stops.pending.items()
    }


def broken_for_a_gang(_: Cluster, memory: "Memory") -> Findings:
    """kube-scheduler preempts no member of a gang for a gang of kfext."""
    return memory.stops.broken


def planned_onto_drained(_: Cluster, memory: "Memory") -> Findings:
    """kfext plans no pod onto a node that is drained."""
    return memory.stops.onto_drained


def too_many_placeholders(cluster: Cluster, _: "Memory") -> Findings:
    """kfext never has more than `MAX_PLACEHOLDERS` placeholders at once."""
    number = sum(bool(pod.placeholder_of) and not pod.ending for pod in cluster.pods)
    return {"all": f"{number} placeholders"} if number > MAX_PLACEHOLDERS else {}


def asked_for_nobody(cluster: Cluster, _: "Memory") -> Findings:
    """No placeholder remains of a job that is deleted or has ended, or that a person suspended."""
    findings = {}
    for pod in cluster.pods:
        gang = cluster.gangs.get(pod.placeholder_of)
        is_asking = gang is not None and gang.handled and (gang.held or not gang.suspended)
        if pod.placeholder_of and not is_asking and not pod.ending:
            findings[pod.uid] = f"placeholder {pod.name} remains of {gang or pod.placeholder_of}"
    return findings


def unused(cluster: Cluster) -> list[str]:
    """Return a message for each node that the autoscaler has added and that has no pod."""
    used = {pod.node for pod in cluster.pods if not pod.over}
    added = (node.name for node in cluster.nodes.values() if POOL in node.labels)
    return [f"{name} was added, and no pod is on it" for name in added if name not in used]


def _stops(cluster: Cluster, memory: "Memory") -> Iterator[tuple[Gang, Stop]]:
    for uid, stops in memory.stops.by_job.items():
        if gang := cluster.gangs.get(uid):
            yield from ((gang, stop) for stop in stops)
