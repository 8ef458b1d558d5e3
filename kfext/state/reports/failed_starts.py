"""Starts that failed: the nodes that a job avoids at its next start, and the suspect nodes.

A node is suspect if jobs failed there at their start, and then ran on other nodes. Only such cured
failures count, so a job that fails everywhere accuses no node. A job that runs there for long
cancels a failure, so jobs that fail at random accuse no node either. A user could fake both, so a
namespace decides for its own jobs alone: for other namespaces it counts once for each node.

All of this is in memory. A new controller learns of a bad node from the next failures there.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.snapshot import FailedStart
from kfext.model.timestamps import written_time
from kfext.names import PLACED
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob

START_SECONDS = 120.0
"""A pod that fails within this time after its creation has failed at its start."""
CURED_SECONDS = 300.0
"""A job that runs for this long on other nodes is cured: a job at fault would have failed again. A
pod that runs for this long did not fail at its start."""
WINDOW_SECONDS, LASTS_SECONDS = 6 * 3600.0, 24 * 3600.0
"""Enough cured failures within the window make a node suspect for some time after the last."""
_FAILURES, _SERIES = 3, 2
"""The least cured failures, and the least series among them, that make a node suspect."""
_MAX_NODES = 8
"""The last nodes that count for a job: a job may fail on all nodes of the cluster, in turn."""
_MAX_JOBS = 4
"""The last jobs of a namespace that count for a node; users may submit any number."""
_SEARCH_SECONDS = 10.0
"""The time between two searches for cured jobs and suspect nodes."""
_RUNS = {"Running", "Succeeded"}


def suspicions(starts: Iterable[FailedStart], *, namespace: str, now: float) -> dict[str, str]:
    """Return the suspect nodes for the jobs of a namespace, each with the reason.

    `starts`: at most one for each node and job. An empty `namespace` stands for a namespace without
    failures. `now`: in epoch seconds; later starts, from a clock that was ahead, do not count.
    """
    suspects: dict[str, str] = {}
    who = "the jobs of one namespace" if namespace else "all jobs"
    on_nodes: dict[str, list[FailedStart]] = {}
    for start in sorted(starts, key=lambda start: (start.at, start.job)):
        if start.at <= now:
            on_nodes.setdefault(start.node, []).append(start)
    for node, history in on_nodes.items():
        for last in reversed(history):
            recent = [each for each in history if 0 <= last.at - each.at < WINDOW_SECONDS]
            counted, until = _counting_failures(recent, namespace), last.at + LASTS_SECONDS
            series = len({each.series for each in counted})
            enough = len(counted) >= _FAILURES and series >= _SERIES
            if enough and not last.ran and now < until:
                suspects[node] = (
                    f"{len(counted)} jobs of {series} series failed here at their start and then "
                    f"ran on other nodes; {who} use it last until {written_time(until)}"
                )
            if enough != last.ran:
                break  # the last start that decides
    return suspects


def _counting_failures(starts: Sequence[FailedStart], namespace: str) -> list[FailedStart]:
    """Return the failures that count among `starts`, which are in the order of time.

    All starts of `namespace` count, and the last start of each other namespace. A job that ran
    cancels the oldest failure.
    """
    last = {each.namespace: each for each in starts}
    failures: list[FailedStart] = []
    for each in starts:
        if namespace != each.namespace and each is not last[each.namespace]:
            continue
        if each.ran:
            del failures[:1]
        else:
            failures.append(each)
    return failures


class FailedStarts:
    """The failed starts of a cluster's jobs. Times are epoch seconds.

    `uncured`: by uid and node, the failed starts of jobs that are not cured.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.uncured: dict[str, dict[str, FailedStart]] = {}
        self._cured: dict[str, list[FailedStart]] = {}
        self._suspects: dict[str, dict[str, str]] = {}
        self._cluster = cluster
        self._search_at = -math.inf

    @property
    def cured(self) -> tuple[FailedStart, ...]:
        """The cured failures, which count against nodes, and long runs, which count for them."""
        return tuple(chain.from_iterable(self._cured.values()))

    @property
    def all(self) -> tuple[FailedStart, ...]:
        """All failed starts that count, for a snapshot."""
        uncured = (starts.values() for starts in self.uncured.values())
        return (*chain.from_iterable(uncured), *self.cured)

    def restore(self, recorded: Iterable[FailedStart]) -> None:
        """Restore the failed starts of a snapshot."""
        for start in recorded:
            if start.cured:
                self._count(start)
            else:
                self.uncured.setdefault(start.job, {})[start.node] = start

    def doubted(self, tracked: TrackedJob) -> frozenset[str]:
        """Return the nodes that a job uses only if it fits nowhere else."""
        if not (self.uncured or self._suspects):
            return frozenset()
        nodes = self.uncured.get(tracked.job.uid, ()), self._suspects.get(tracked.job.namespace, ())
        return frozenset(chain(*nodes, self.suspects_of_all))

    def failed_on(self, tracked: TrackedJob, *, twice: bool = False) -> frozenset[str]:
        """Return the nodes on which a job failed, or failed `twice`, under its present plan."""
        generation = tracked.plan.generation if tracked.plan else 0
        starts = self.uncured.get(tracked.job.uid, {}).values()
        present = (start for start in starts if start.generation == generation)
        return frozenset(start.node for start in present if start.twice or not twice)

    @property
    def suspects_of_all(self) -> Mapping[str, str]:
        """The nodes that are suspect for the jobs of all namespaces, each with the reason."""
        return self._suspects.get("", {})

    def suspects(self) -> dict[str, str]:
        """Return all suspect nodes, each with the reason; first the suspects of all namespaces."""
        views = sorted(self._suspects.items())
        return {node: why for _, nodes in views for node, why in nodes.items()}

    def settle(self, now: Moment) -> None:
        """Record the pods that failed since the last call; now and then search for cured jobs."""
        failed, self._cluster.failed = self._cluster.failed, []
        for pod in failed:
            self._record(pod, now.wall)
        if now.monotonic >= self._search_at and (self.uncured or self._cured):
            self._search_at = now.monotonic + _SEARCH_SECONDS
            self._search(now)

    def _record(self, pod: Pod, now: float) -> None:
        """Record a failed pod, if kfext has placed it and it failed at its start."""
        tracked, node = self._cluster.jobs.get(pod.owner_uid), pod.node_name
        if tracked is None or tracked.plan is None or abs(now - pod.created) > START_SECONDS:
            return
        job, plan = tracked.job, tracked.plan
        if pod.replica is None or plan.assignment.get(pod.replica) != node:
            return
        starts = self.uncured.setdefault(job.uid, {})
        for other, start in starts.items():
            if start.generation == plan.generation:  # the first to fail is the likely cause
                twice = start.twice or start.replica == pod.replica
                starts[other] = replace(start, alone=start.alone and other == node, twice=twice)
                return
        starts.pop(node, None)
        fields = node, job.uid, job.namespace, job.series, now
        starts[node] = FailedStart(*fields, generation=plan.generation, replica=pod.replica)
        if len(starts) > _MAX_NODES:
            del starts[next(iter(starts))]

    def _search(self, now: Moment) -> None:
        """Count cured failures, forget old starts, and find the suspect nodes."""
        old = now.wall - WINDOW_SECONDS
        for uid, starts in tuple(self.uncured.items()):
            tracked = self._cluster.jobs.get(uid)
            if tracked and tracked.plan and self._is_cured(tracked, now.monotonic):
                for node, start in starts.items():
                    if start.alone and node not in tracked.plan.nodes:
                        self._count(replace(start, at=now.wall, cured=True))
                del self.uncured[uid]
            elif not tracked or max(each.at for each in starts.values()) < old:
                del self.uncured[uid]
        self._cancel_failures(now.wall)
        since, row = old - LASTS_SECONDS, self._cluster.ledger.row
        self._cured = {
            node: kept
            for node, starts in self._cured.items()
            if row(node) is not None and (kept := [each for each in starts if each.at > since])
        }
        views = {"": suspicions(self.cured, namespace="", now=now.wall)}
        for node in self._cured.keys() - views[""].keys():
            for view in {start.namespace for start in self._cured[node]}:
                suspects = suspicions(self._cured[node], namespace=view, now=now.wall)
                views.setdefault(view, {}).update(suspects)
        self._suspects = {view: nodes for view, nodes in views.items() if nodes}

    def _is_cured(self, tracked: TrackedJob, now: float) -> bool:
        """Return whether a job has run for long enough, or to its end, under its present plan."""
        phases = {pod.phase for pod in self._cluster.pods(tracked.job.uid)}
        runs = tracked.phase == PLACED and bool(phases) and phases <= _RUNS
        lasted = now - tracked.progressed_at >= CURED_SECONDS
        return tracked.job.has("Succeeded") or (runs and lasted)

    def _cancel_failures(self, now: float) -> None:
        """Count the jobs that have run for long on nodes with failures that count."""
        for node in {each.node for each in self.cured if not each.ran}:
            for uid in self._cluster.claim_tracker.claiming_on(node):
                job, pods = self._cluster.jobs[uid].job, self._cluster.pods(uid)
                running = [pod for pod in pods if pod.node_name == node and pod.phase == "Running"]
                at = max((pod.created for pod in running), default=math.inf) + CURED_SECONDS
                if at <= now:
                    fields = node, uid, job.namespace, job.series, at
                    self._count(FailedStart(*fields, cured=True, ran=True))

    def _count(self, start: FailedStart) -> None:
        """Count a start against its node or for the node, once for each job."""
        others = (each for each in self._cured.get(start.node, ()) if each.job != start.job)
        starts = sorted((*others, start), key=lambda each: each.at)
        old = [each for each in starts if each.namespace == start.namespace][:-_MAX_JOBS]
        self._cured[start.node] = [each for each in starts if each not in old]
