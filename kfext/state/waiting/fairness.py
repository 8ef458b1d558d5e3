"""The order between namespaces, where a TrainingPolicy asks for it: the least usage first.

Usage follows from the claims on the ledger, so jobs that Kueue starts are charged too. They are not
ordered, because they never wait in this queue.
"""

import math
from collections.abc import Callable

from kfext.core.elastic import requested_workers, workers_of
from kfext.core.ledger.claims import pod_key
from kfext.core.queue.order import FIRST, LONGEST_WAIT, QueueKey
from kfext.core.queue.usage import (
    NamespaceUsage,
    UsageRecord,
    part_of,
    projected,
    requests_of,
    usage_after,
    window,
)
from kfext.model.job import TrainingJob
from kfext.model.moment import Moment
from kfext.model.parameters import Fairness
from kfext.model.quantity import CPU, MEMORY
from kfext.model.timestamps import past
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.settings import SettingsSource
from kfext.state.mirror.tracked_job import TrackedJob

_ORDER_SECONDS = 1.0
"""Jobs are ordered anew after this time, and at once after one came, started or changed."""
_LEAST_USED = 1e-3
"""Seconds of the cluster; less usage of a namespace that holds nothing is forgotten."""


class UsageOrder:
    """Charges namespaces and orders their waiting jobs; `on`: whether a policy asks for it.

    `moved`: whether the order has changed since that was last reset.
    `turn` returns the sort key of a job without regard to usage. Amounts are parts of the cluster.
    """

    def __init__(
        self, cluster: Cluster, settings: SettingsSource, turn: Callable[[TrackedJob], QueueKey]
    ) -> None:
        self.on = self.moved = False
        self._cluster, self._settings, self._turn = cluster, settings, turn
        self._saved = UsageRecord()
        self._now, self._half_life, self._ordered_at = Moment(0.0, 0.0), 1.0, 0.0
        self._used: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._capacity: dict[str, float] = {}
        self._holding: dict[str, tuple[str, float, float]] = {}
        self._sizes: dict[str, tuple[TrainingJob, float | None]] = {}
        self._ahead: dict[str, float] = {}
        self._first: dict[int, dict[str, float]] = {}
        self._waiting: dict[str, int] = {}
        self._line: list[str] = []

    def begin_tick(self, now: Moment) -> None:
        """Charge the time since the last tick, and order the waiting jobs by what is held now."""
        queueing, synced = self._settings.queueing, self._cluster.claim_tracker.synced
        if queueing.fairness is not Fairness.USAGE:
            if self.on:
                self.restore(self.record())
            self._cluster.claim_tracker.synced = None
            return
        due = now.monotonic - self._ordered_at >= _ORDER_SECONDS
        if self.on and not (due or synced):
            return
        self._half_life = max(queueing.half_life, 1.0)
        if self.on:
            self._charge(now.monotonic - self._now.monotonic)
            due |= any(uid in self._ahead or self._waits(uid) for uid in synced or ())
            self._measure()
        else:
            self._begin(now.wall)
        due, self.on, self._now = due or not self.on, True, now
        if due:
            self._order()

    def _waits(self, uid: str) -> bool:
        tracked = self._cluster.jobs.get(uid)
        return tracked is not None and tracked.job.in_queue

    def restore(self, record: UsageRecord) -> None:
        """Begin again from a record at the next tick."""
        self._saved, self.on = record, False

    def _begin(self, now: float) -> None:
        """Begin with the saved usage; what runs is charged from then on, or from its start."""
        self._cluster.claim_tracker.synced = set(self._cluster.jobs)
        self._holding = {}
        self._measure()
        saved, at = self._saved, past(self._saved.at, now=now)
        known_until = at or (now if saved.namespaces else 0.0)
        self._used = {
            name: self._after(now - known_until, found.used, held=0.0)
            for name, found in saved.namespaces.items()
        }
        for uid, (namespace, part, _) in self._holding.items():
            began = past(self._cluster.jobs[uid].job.started, now=now) or now
            ran = self._after(now - max(began, known_until), 0.0, held=part)
            self._used[namespace] = self._used.get(namespace, 0.0) + ran

    def _after(self, seconds: float, used: float, *, held: float) -> float:
        return usage_after(seconds, used, held=held, half_life=self._half_life)

    def _charge(self, seconds: float) -> None:
        """Charge what was held since the last tick.

        Workers beyond the requested size are free unless a job of another namespace waits.
        """
        charged: dict[str, float] = {}
        for namespace, part, extra in self._holding.values():
            contested = len(self._waiting) > (namespace in self._waiting)
            held = part if contested else part - extra
            charged[namespace] = charged.get(namespace, 0.0) + held
        used = {
            name: self._after(seconds, self._used.get(name, 0.0), held=charged.get(name, 0.0))
            for name in (self._used | charged)
        }
        self._used = {name: n for name, n in used.items() if n >= _LEAST_USED or name in charged}

    def _measure(self) -> None:
        """Bring what jobs hold up to date."""
        tracker, ledger = self._cluster.claim_tracker, self._cluster.ledger
        changed, tracker.synced = tracker.synced or set(), set()
        counted = (CPU, MEMORY, *ledger.extended)
        totals = ledger.allocatable(counted).sum(axis=1).tolist()
        capacity = dict(zip(counted, totals, strict=True))
        if capacity != self._capacity:
            self._capacity, self._sizes = capacity, {}
            changed |= self._holding.keys()
        for uid in changed:
            self._holding.pop(uid, None)
            if (tracked := self._cluster.jobs.get(uid)) and (part := self._part_held(uid)):
                job = tracked.job
                more = max(workers_of(job) - requested_workers(job, tracked.state), 0)
                self._holding[uid] = job.namespace, part, part * more / max(job.pods, 1)
        self._held = {}
        for namespace, part, _ in self._holding.values():
            self._held[namespace] = self._held.get(namespace, 0.0) + part

    def _part_held(self, uid: str) -> float:
        """Return the part that the pods and the plan of a job claim."""
        keys = (pod_key(pod.uid) for pod in self._cluster.pods(uid))
        claims = [claim for key in keys if (claim := self._cluster.ledger.claim_of(key))]
        claims += self._cluster.holds.plan(uid).values()
        return part_of((claim.requests for claim in claims), self._capacity)

    # --- the order ------------------------------------------------------------------------------

    def projected(self, tracked: TrackedJob) -> float:
        """Return the projected usage of a job; 0.0 of a job that does not wait in the queue."""
        job = tracked.job
        if job.uid not in self._ahead and self._waits(job.uid):  # it came since the last tick
            self._order()
        ahead = self._ahead.get(job.uid) if job.suspend else None
        if ahead is None or len(self._waiting) == 1:  # alone, it has the order without usage
            return 0.0
        return self._projected(job.namespace, ahead)

    def _projected(self, namespace: str, ahead: float) -> float:
        return projected(
            ahead,
            used=self._used.get(namespace, 0.0),
            held=self._held.get(namespace, 0.0),
            weight=self._weights.get(namespace, 1.0),
            half_life=self._half_life,
        )

    def _order(self) -> None:
        """Add up what the waiting jobs ask for, in their order within each namespace."""
        sizes, self._sizes = self._sizes, {}
        lines: dict[str, list[tuple[QueueKey, TrackedJob, float]]] = {}
        for uid, tracked in self._cluster.jobs.items():
            known = sizes.get(uid)
            if known is None or known[0] is not tracked.job:
                known = (tracked.job, self._size(tracked.job))
            self._sizes[uid] = known
            if known[1] is not None:
                line = lines.setdefault(tracked.job.namespace, [])
                # A job that is being started is held already.
                size = 0.0 if tracked.assumed else known[1]
                line.append((self._turn(tracked), tracked, size))
        self._ahead, self._first, order = {}, {}, []
        self._waiting = {namespace: len(line) for namespace, line in lines.items()}
        self._weights = {name: self._settings.queue_weight(name) for name in lines}
        for namespace, line in lines.items():
            asked = 0.0
            for turn, tracked, size in sorted(line):
                asked += size
                ahead = FIRST if self._is_overdue(tracked) else asked
                self._ahead[tracked.job.uid] = ahead
                self._first.setdefault(turn[0], {}).setdefault(namespace, ahead)
                order.append((turn[0], self._projected(namespace, ahead), turn, tracked.job.uid))
        uids = [uid for *_, uid in sorted(order)]
        self.moved, self._line = self.moved or uids != self._line, uids
        self._ordered_at = self._now.monotonic

    def _size(self, job: TrainingJob) -> float | None:
        """Return the part that a waiting job asks for; None: it does not wait."""
        return part_of(requests_of(job), self._capacity) if job.in_queue else None

    def _is_overdue(self, tracked: TrackedJob) -> bool:
        """Return whether a job has waited for so long that no namespace comes before it."""
        now = self._now.wall
        old = now - tracked.job.created >= LONGEST_WAIT
        return old and tracked.waits(now) >= LONGEST_WAIT

    def why_behind(self, tracked: TrackedJob) -> str:
        """Return why another namespace comes before a waiting job, in a clause; empty if none does.

        The other namespace is not named: the users of the job need not be allowed to see it.
        """
        namespace, own = tracked.job.namespace, self.projected(tracked)
        if math.isinf(own):
            return "its namespace has weight 0 and comes last" if own > 0 else ""
        first = self._first.get(self._turn(tracked)[0], {})
        others = ((name, self._projected(name, ahead)) for name, ahead in first.items())
        ahead = (self._mean(name) for name, usage in others if FIRST < usage < own)
        least, mine = (round(100 * mean) for mean in (min(ahead, default=1), self._mean(namespace)))
        hours = self._half_life / 3600
        parts = f"{least} % against {mine} % of the last {'day' if hours == 24 else f'{hours:g} h'}"
        return f"it is behind a namespace that used less ({parts})" if least < mine else ""

    def _mean(self, namespace: str) -> float:
        """Return the part that a waiting namespace held in the mean, divided by its weight."""
        mean = self._used.get(namespace, 0.0) / window(self._half_life)
        return mean / self._weights.get(namespace, 1.0)

    def record(self) -> UsageRecord:
        """Return the usage at the last tick."""
        namespaces = {
            name: NamespaceUsage(
                self._used.get(name, 0.0),
                self._settings.queue_weight(name),
                self._held.get(name, 0.0),
                self._waiting.get(name, 0),
            )
            for name in sorted(self._used.keys() | self._held.keys() | self._waiting.keys())
        }
        return UsageRecord(self._now.wall, self._half_life, namespaces)
