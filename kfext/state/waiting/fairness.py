"""The order of namespaces, if a TrainingPolicy asks for it: the namespace with least usage first.

Usage follows from the claims on the ledger, so jobs that Kueue starts are charged too. These jobs
are not ordered, because they never wait in this queue.
"""

import math
from collections import Counter
from collections.abc import Callable

from kfext.core.elastic import requested_workers, workers_of
from kfext.core.ledger.claims import pod_key
from kfext.core.queue.order import QueueKey
from kfext.core.queue.usage import (
    NamespaceUsage,
    UsageRecord,
    dominant_share,
    requests_of,
    usage_after,
)
from kfext.core.words import age
from kfext.model.moment import Moment
from kfext.model.parameters import Fairness
from kfext.model.timestamps import past
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.settings import SettingsSource
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.waiting.reservations import KEEPS, RESERVED_SECONDS

LONGEST_WAIT = 86_400.0
"""In seconds. A job that has waited longer comes before every namespace, and so does a job that got
the reservation RESERVED_SECONDS ago: otherwise small new jobs could use its capacity forever."""
_IN_LINE = KEEPS | {""}
"""A job that is new or waits for these reasons adds to the projected usage of jobs behind it."""
_FIRST = -math.inf
"""The projected usage of a job that comes before every namespace."""
_ORDER_SECONDS = 1.0
"""Jobs are reordered after this time, and at once if a job or its claims have changed."""
_MIN_USED = 1e-3
"""In cluster-seconds. Less usage of a namespace without running and waiting jobs is forgotten."""


class UsageOrder:
    """Charges namespaces and orders their waiting jobs. Amounts are fractions of the cluster.

    `on`: whether a policy asks for this order. `record`: the usage at the last tick.
    `moved`: whether the order has changed since it was reset. `key` returns a job's sort key.
    """

    def __init__(
        self, cluster: Cluster, settings: SettingsSource, key: Callable[[TrackedJob], QueueKey]
    ) -> None:
        self.on = self.moved = False
        self.record = UsageRecord()
        self._cluster, self._settings, self._key = cluster, settings, key
        self._charged_at = 0.0
        self._capacity: dict[str, float] = {}
        # By job: its namespace, what it holds, and how much of it is beyond the requested size.
        self._holding: dict[str, tuple[str, float, float]] = {}
        self._asking: dict[str, float] = {}  # the requests of each waiting job
        self._projected: dict[str, float] = {}
        self._first: dict[tuple[int, str], float] = {}
        self._reserved: dict[str, float] = {}
        self._line: list[str] = []

    def restore(self, record: UsageRecord) -> None:
        """Continue from a record at the next tick."""
        self.record, self.on = record, False

    def begin_tick(self, now: Moment) -> None:
        """Charge the time since the last tick, and order the waiting jobs by the present usage."""
        queueing, tracker = self._settings.queueing, self._cluster.claim_tracker
        if queueing.fairness is not Fairness.USAGE:
            self.on, tracker.synced = False, None
            return
        seconds = now.monotonic - self._charged_at
        if self.on and seconds < _ORDER_SECONDS and not tracker.synced:
            return
        self.record.rescale(max(queueing.half_life, 1.0))
        if self.on:
            self._charge(seconds)
            self._measure()
        else:
            self._begin(now.wall)
        self.on, self._charged_at, self.record.at = True, now.monotonic, now.wall
        self._order(now.wall)

    # --- usage ----------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        """Continue from the record; charge running jobs since its time, or since their start."""
        stored = self.record.namespaces
        known_until = past(self.record.at, now=now) or (now if stored else 0.0)
        for usage in stored.values():
            usage.used = self._after(now - known_until, usage.used, held=0.0)
        self._cluster.claim_tracker.synced = set(self._cluster.jobs)
        self._holding, self._asking = {}, {}
        self._measure()
        for uid, (namespace, held, _) in self._holding.items():
            began = past(self._cluster.jobs[uid].job.started, now=now) or now
            used = self._after(now - max(began, known_until), 0.0, held=held)
            self.record.namespaces[namespace].used += used

    def _after(self, seconds: float, used: float, *, held: float) -> float:
        return usage_after(seconds, used, held=held, half_life=self.record.half_life)

    def _charge(self, seconds: float) -> None:
        """Charge the capacity that was held since the last tick.

        Workers beyond the requested size are free unless a job of another namespace waits.
        """
        namespaces = self.record.namespaces
        charged = dict.fromkeys(namespaces, 0.0)
        waiting = self._waiting()
        for name, held, extra in self._holding.values():
            contested = waiting > (namespaces[name].waiting > 0)
            charged[name] += held if contested else held - extra
        for name, total in charged.items():
            namespaces[name].used = self._after(seconds, namespaces[name].used, held=total)

    def _waiting(self) -> int:
        """Return the number of namespaces with waiting jobs."""
        return sum(usage.waiting > 0 for usage in self.record.namespaces.values())

    def _measure(self) -> None:
        """Update the capacity that jobs hold and ask for."""
        tracker, ledger = self._cluster.claim_tracker, self._cluster.ledger
        changed, tracker.synced = tracker.synced or set(), set()
        counted = ledger.main_resources
        totals = ledger.allocatable(counted).sum(axis=1).tolist()
        capacity = dict(zip(counted, totals, strict=True))
        if capacity != self._capacity:
            self._capacity = capacity
            changed |= self._holding.keys() | self._asking.keys()
        for uid in changed:
            self._holding.pop(uid, None)
            self._asking.pop(uid, None)
            if tracked := self._cluster.jobs.get(uid):
                self._measure_job(tracked)
        held: dict[str, float] = {}
        for namespace, held_by_job, _ in self._holding.values():
            held[namespace] = held.get(namespace, 0.0) + held_by_job
        waiting = Counter(self._cluster.jobs[uid].job.namespace for uid in self._asking)
        known = self.record.namespaces
        kept = {name for name, usage in known.items() if usage.used >= _MIN_USED}
        self.record.namespaces = {
            name: NamespaceUsage(
                known[name].used if name in known else 0.0,
                self._settings.queue_weight(name),
                held.get(name, 0.0),
                waiting[name],
            )
            for name in sorted(kept | held.keys() | waiting.keys())
        }

    def _measure_job(self, tracked: TrackedJob) -> None:
        job, cluster = tracked.job, self._cluster
        keys = (pod_key(pod.uid) for pod in cluster.pods(job.uid))
        claims = [claim for key in keys if (claim := cluster.ledger.claim_of(key))]
        claims += cluster.holds.plan(job.uid).values()
        if part := dominant_share((claim.requests for claim in claims), self._capacity):
            extra = max(workers_of(job) - requested_workers(job, tracked.state), 0)
            self._holding[job.uid] = job.namespace, part, part * extra / max(job.pods, 1)
        if job.in_queue:  # a job that is being started is held already
            asked = dominant_share(requests_of(job), self._capacity)
            self._asking[job.uid] = 0.0 if tracked.assumed else asked

    # --- the order ------------------------------------------------------------------------------

    def projected(self, tracked: TrackedJob) -> float:
        """Return the projected usage of a job: its sort key between namespaces.

        It is 0.0 for a job that is not in the queue, and while a single namespace has waiting jobs.
        """
        return self._projected.get(tracked.job.uid, 0.0)

    def _order(self, now: float) -> None:
        """Order the waiting jobs by usage, plus the requests of earlier jobs of their namespace.

        A job's own requests do not count: otherwise small jobs would always precede large jobs.
        """
        self._projected, self._first = {}, {}
        jobs, namespaces = self._cluster.jobs, self.record.namespaces
        waiting = self._asking if self._waiting() > 1 else ()
        requested, order = dict.fromkeys(namespaces, 0.0), []
        reservation = self._cluster.holds.reservation
        holder = reservation.job if reservation else ""
        self._reserved = {uid: at for uid, at in self._reserved.items() if uid in self._asking}
        reserved_long = now - self._reserved.setdefault(holder, now) >= RESERVED_SECONDS
        for key, uid in sorted((self._key(jobs[uid]), uid) for uid in waiting):
            name = jobs[uid].job.namespace
            usage = namespaces[name].projected(requested[name], half_life=self.record.half_life)
            first = reserved_long and uid == holder and usage < math.inf
            usage = _FIRST if first or _is_overdue(jobs[uid], now) else usage
            if jobs[uid].not_started_reason in _IN_LINE:
                requested[name] += self._asking[uid]
            self._projected[uid] = usage
            self._first.setdefault((key[0], name), usage)
            order.append((key[0], usage, key, uid))
        line = [uid for *_, uid in sorted(order)]
        self.moved, self._line = self.moved or line != self._line, line

    def why_behind(self, tracked: TrackedJob) -> str:
        """Return the reason why another namespace comes first, as a clause, or an empty string.

        The other namespace is not named, because the users of the job may not be allowed to see it.
        """
        projected, priority = self.projected(tracked), self._key(tracked)[0]
        if projected == math.inf:
            return "its namespace has weight 0 and comes last"
        if projected <= 0:
            return ""
        first = ((name, usage) for (level, name), usage in self._first.items() if level == priority)
        ahead = (self._mean(name) for name, usage in first if _FIRST < usage < projected)
        least, mine = min(ahead, default=math.inf), self._mean(tracked.job.namespace)
        if least >= mine:
            return ""
        period = age(self.record.half_life)
        less, more = (f"{100 * mean:.0f} %" for mean in (least, mine))
        means = "" if less == more else f" ({less} against {more} of the last {period})"
        return f"it is behind a namespace that used less{means}"

    def _mean(self, namespace: str) -> float:
        """Return the mean fraction of the cluster that a namespace held, divided by its weight."""
        return self.record.mean(namespace) / self.record.namespaces[namespace].weight


def _is_overdue(tracked: TrackedJob, now: float) -> bool:
    """Return whether a job has waited for so long that no namespace comes before it."""
    old = now - tracked.job.created >= LONGEST_WAIT and tracked.not_started_reason in _IN_LINE
    return old and tracked.queued_seconds(now) >= LONGEST_WAIT
