"""The jobs that may ask an autoscaler for nodes, and the jobs that may use the new nodes.

Jobs ask in the order of the queue, while the placeholders of all jobs are few enough. Running gangs
that lost members come before the queue.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping

from kfext.core.ledger.claims import pod_key
from kfext.core.lifecycle.new_nodes import MAX_PLACEHOLDERS
from kfext.core.lifecycle.situation import NodeView
from kfext.core.placement.gang import limits_of
from kfext.core.queue.order import QueueKey
from kfext.core.settings.table import Settings
from kfext.model.pod import Pod
from kfext.model.quantity import Resources
from kfext.names import REASON_WAITING_FOR_NODES
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob

_Position = tuple[int, QueueKey]
_QUEUED_PLACEHOLDERS = 400
"""The most placeholders of queued jobs; a larger gang asks alone. Running gangs may have more."""
_LOST_MEMBERS, _QUEUED, _GROWING = range(3)
"""New nodes are for gangs that lost members, then for queued jobs, then for scale-ups."""


class Asks:
    """The asks of all jobs, in order. `possible`: whether kfext can ask an autoscaler at all."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Callable[[TrackedJob], Settings],
        key: Callable[[TrackedJob], QueueKey],
    ) -> None:
        self.possible = False
        self._cluster = cluster
        self._key_of = key
        self._keys: dict[str, QueueKey] = {}
        self._first_cached: tuple[int, dict[str, _Position]] = (-1, {})
        self._placeholders = cluster.claim_tracker.placeholders
        self._placeholders.limits_of = lambda job: limits_of(settings(job), excluded=())
        self._wanting: dict[str, TrackedJob] = {}  # jobs that wait for their turn to ask
        self._granted: dict[str, int] = {}  # pods of each job that may ask and has not asked
        self._complete: dict[str, bool] = {}  # whether each open ask was complete

    def begin_tick(self) -> None:
        """Begin a tick: the keys of jobs may have changed."""
        self._keys.clear()
        self._first_cached = (-1, {})

    def view(self, tracked: TrackedJob) -> NodeView:
        """Return the state of new nodes for a job."""
        uid, ask = tracked.job.uid, self._placeholders.open_asks.get(tracked.job.uid)
        if ask is None:
            return NodeView(
                possible=self.possible,
                turn=lambda: self._why_later(tracked),
                claims=self.usable_claims(tracked),
                awaited=self.awaited_nodes(tracked),
            )
        return NodeView(
            possible=self.possible,
            wanted=sum(ask.member_counts.values()),
            bound=sum(ask.member_counts[pod.name] for pod in ask.holding),
            came=self._placeholders.new_nodes(ask),
            progressed_at=ask.progressed_at,
            refused=ask.refused,
            claims=self.usable_claims(tracked),
            awaited=self.awaited_nodes(tracked),
            held=None if self._placeholders.is_complete(uid) else self._held(tracked),
        )

    def usable_claims(self, tracked: TrackedJob) -> tuple[Hashable, ...]:
        """Return the keys of the placeholder claims that a job may use: its own and later jobs'."""
        if self._placeholders.idle:
            return ()
        return tuple(map(pod_key, (pod.uid for pod in self._usable(tracked))))

    def _usable(self, tracked: TrackedJob) -> Iterator[Pod]:
        position, job_uid = self._position(tracked), tracked.job.uid
        for uid in self._placeholders.by_job:
            other = self._cluster.jobs.get(uid)
            if uid == job_uid or (other is not None and self._position(other) > position):
                yield from self._placeholders.claiming(uid)

    def _held(self, tracked: TrackedJob) -> Mapping[str, Resources]:
        """Return the resources of each new node that usable placeholders hold for a job."""
        held: dict[str, Counter[str]] = {}
        for pod in self._usable(tracked):
            held.setdefault(pod.node_name, Counter()).update(pod.requests)
        return held

    def awaited_nodes(self, tracked: TrackedJob) -> frozenset[str]:
        """Return the new nodes that a job must not use yet.

        An incomplete ask of this job, or of a job before it, requested them, and no placeholder
        that the job may use holds them. Another job can get such a node at any time.
        """
        if tracked.forming or not self._placeholders.open_asks:
            return frozenset()
        position = self._position(tracked)
        new = {name for name, first in self._first_asks().items() if first <= position}
        return frozenset(new - {pod.node_name for pod in self._usable(tracked)} if new else ())

    def _first_asks(self) -> Mapping[str, _Position]:
        """Return the new nodes, each with the position of the first incomplete ask for it."""
        version, first = self._first_cached
        if version != self._placeholders.version:
            first, jobs = {}, self._cluster.jobs
            asks = sorted((self._position(jobs[uid]), uid) for uid in self._placeholders.open_asks)
            for position, uid in asks:
                if not self._placeholders.is_complete(uid):
                    new = self._placeholders.new_candidates(uid, skip=first)
                    first |= dict.fromkeys(new, position)
            self._first_cached = self._placeholders.version, first
        return first

    def _position(self, tracked: TrackedJob) -> _Position:
        rank = _QUEUED if tracked.job.suspend else _LOST_MEMBERS if tracked.gated else _GROWING
        return rank, self._key(tracked)

    def _key(self, tracked: TrackedJob) -> QueueKey:
        """Return the key of a job, cached for a tick: each job is compared with all others."""
        if (key := self._keys.get(tracked.job.uid)) is None:
            key = self._keys[tracked.job.uid] = self._key_of(tracked)
        return key

    # --- turns ----------------------------------------------------------------------------------

    def record(self, tracked: TrackedJob) -> None:
        """Record whether a job asks or waits for its turn, after a decision on the job."""
        uid, verdict = tracked.job.uid, tracked.verdict
        if not tracked.busy:
            self._granted.pop(uid, None)
        if uid in self._placeholders.open_asks:
            self._wanting.pop(uid, None)
            complete = self._placeholders.is_complete(uid)
            if self._complete.get(uid) is not complete:
                self._complete[uid] = complete
                self._cluster.mark_queue()
            return
        wants = verdict is not None and verdict.reason == REASON_WAITING_FOR_NODES
        if wants and tracked.queued:
            self._wanting[uid] = tracked
        elif not tracked.busy:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """Forget a job that no longer asks: other jobs may now ask, and use its nodes."""
        self._granted.pop(uid, None)
        if self._wanting.pop(uid, None) is not None or self._complete.pop(uid, None) is not None:
            self._cluster.mark_queue()

    def _why_later(self, tracked: TrackedJob) -> str:
        """Return the reason why a job must not ask yet, or an empty string.

        Jobs that asked in vain come last, so that no job blocks the others.
        """
        used: Counter[str] = Counter()  # placeholders by namespace
        for uid, ask in self._placeholders.open_asks.items():
            used[self._cluster.jobs[uid].job.namespace] += len(ask.missing)
        for uid in self._granted.keys() - self._placeholders.open_asks.keys() - {tracked.job.uid}:
            if (other := self._cluster.jobs.get(uid)) is not None:
                used[other.job.namespace] += self._granted[uid]
        if not tracked.job.suspend:
            gated = sum(pod.gated for pod in self._cluster.pods(tracked.job.uid))
            return "" if used.total() + gated <= MAX_PLACEHOLDERS else _JOBS_BEFORE
        line = sorted({**self._wanting, tracked.job.uid: tracked}.values(), key=self._next_to_ask)
        waiting = {other.job.namespace for other in line}
        for other in line:
            namespace, number = other.job.namespace, other.job.pods
            contested = bool(waiting - {namespace}) and used[namespace] > 0
            if contested and used[namespace] + number > _QUEUED_PLACEHOLDERS // 2:
                if other is tracked:
                    return _OTHER_NAMESPACES
            elif used.total() and used.total() + number > _QUEUED_PLACEHOLDERS:
                return _JOBS_BEFORE
            elif other is tracked:
                self._granted[tracked.job.uid] = number
                return ""
            else:
                used[namespace] += number  # its turn comes first
        return ""

    def _next_to_ask(self, tracked: TrackedJob) -> tuple[int, QueueKey]:
        ask = tracked.state.ask
        return ask.number if ask else 0, self._key(tracked)


_JOBS_BEFORE = "kfext asks for its nodes once jobs before it have theirs"
_OTHER_NAMESPACES = "kfext asks for its nodes once jobs of other namespaces have theirs"
