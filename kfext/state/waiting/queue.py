"""The queue: the order and the positions of jobs, and the times to renew the reservation.

A new process computes the same order and the same reservation from the cluster.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from kfext.core.elastic import scale_mode, starts_anew
from kfext.core.ledger.capacity_hold import Hold
from kfext.core.lifecycle.situation import NO_NODES, QueueContext
from kfext.core.placement.gang import Limits
from kfext.core.queue.no_fit import Gained, NoFitCache
from kfext.core.queue.order import QueueKey, queue_key
from kfext.core.queue.priority import in_line, lowest_class, priority_class, why_there
from kfext.core.queue.quota import NO_RAISE
from kfext.core.queue.reservation import Reservation
from kfext.core.settings.table import Settings
from kfext.core.words import has, listed, listed_with_others
from kfext.model.job import TrainingJob
from kfext.model.parameters import QueueOrder
from kfext.model.policy import Mode
from kfext.model.priority import PriorityClass
from kfext.model.verdict import Verdict
from kfext.names import QUEUED, REASON_PREEMPTING, REASON_QUOTA, REASON_WAITING_FOR_OPERATOR
from kfext.state.mirror.cluster import ANY, Cluster
from kfext.state.mirror.settings import SettingsSource
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.waiting.asks import Asks
from kfext.state.waiting.durations import DurationEstimates
from kfext.state.waiting.fairness import UsageOrder
from kfext.state.waiting.quotas import Quotas
from kfext.state.waiting.reservations import ReservationManager

_POSITION_SECONDS = 1.0
"""The time between two updates of the shown positions: each start moves all jobs behind it."""
_EXACT = 19
"""Up to here positions are exact. Higher positions are rounded, to within a tenth: otherwise each
start of a job would rewrite the position of all other jobs."""


class Queue:
    """The queue over a cluster's jobs. `now` is in epoch seconds.

    A *round* offers free capacity to the waiting jobs once; a *break* has no reservation.

    `asks`: the asks of jobs for new nodes. `autoscaler`: whether the cluster has an autoscaler.
    `reservations`: the reservation of the first job.
    `no_fits`: the placements that were refused and would be refused again.
    `started_at`: when a job last started, in monotonic seconds.
    `usage`: the order of namespaces.
    """

    def __init__(
        self, cluster: Cluster, settings: SettingsSource, durations: DurationEstimates
    ) -> None:
        self.no_fits = NoFitCache()
        self.usage = UsageOrder(cluster, settings, self.key)
        self.autoscaler = False
        self.started_at = -math.inf
        self.quotas = Quotas(cluster)
        self.asks = Asks(cluster, settings.settings_of, self.key)
        self.reservations = ReservationManager(
            cluster,
            settings.settings_of,
            durations,
            limits=self.limits,
            usable=self.asks.usable_claims,
        )
        self.durations = durations
        self._settings = settings.settings_of
        self._cluster = cluster
        self._queued: dict[str, TrackedJob] = {}
        self._priorities: dict[str, tuple[TrainingJob, int]] = {}
        self._shown: dict[str, int] = {}
        self._moved = False
        self._next_update_at = -math.inf
        self._renewal_basis: tuple[int, int] | None = None
        self._break_is_offered = False
        self._only_operator_is_free = False
        self._expected: Mapping[str, float] | None = None

    def begin_tick(self, *, now: float) -> None:
        """Begin a tick: the reservation may again search for capacity, up to MAX_SEARCHES times."""
        self._expected = None  # progress and jobs may have changed
        if self._cluster.claim_tracker.autoscaled:
            self.asks.begin_tick()
        self._cluster.holds.expire(now)
        self.reservations.begin_tick(now=now)

    def observe_class(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        """Record the present version of a PriorityClass; `new` is None when it is gone."""
        self._cluster.observe_class(old, new)
        self._priorities.clear()
        self._moved = True
        self._cluster.mark_queue()

    def observe_autoscaler(self, *, present: bool, can_ask: bool = False) -> None:
        """Record whether the cluster has an autoscaler, and whether kfext can ask it for nodes."""
        if (present, can_ask) != (self.autoscaler, self.asks.possible):
            self.autoscaler, self.asks.possible = present, can_ask
            self._cluster.claim_tracker.autoscaled |= present  # placeholders may outlive it
            self._cluster.mark_queue()

    def headroom(self, namespace: str) -> int | None:
        """Return how many more millicores pods of a namespace may request; None means no limit.

        It is NO_RAISE if a job of the namespace waits for a quota, or if an autoscaler sizes the
        cluster by the requests of pods.
        """
        waits = any(
            tracked.job.namespace == namespace
            and tracked.verdict is not None
            and tracked.verdict.reason == REASON_QUOTA
            for tracked in self._queued.values()
        )
        return NO_RAISE if waits or self.autoscaler else self.quotas.cpu_headroom(namespace)

    def key(self, tracked: TrackedJob, *, remaining: float | None = None) -> QueueKey:
        """Return the sort key of a job: the smallest comes first.

        `remaining`: the seconds to its end; None means that the job has not started.
        """
        seconds = None
        if self._counts_duration(tracked):
            seconds = self.durations.known(tracked.job) if remaining is None else remaining
        seconds = self.durations.usual() if seconds is None else seconds
        projected = self.usage.projected(tracked) if self.usage.on else 0.0
        return queue_key(tracked.job, self.priority(tracked), seconds, projected=projected)

    def _counts_duration(self, tracked: TrackedJob) -> bool:
        """Return whether the order of a job depends on its expected duration."""
        settings = self._settings(tracked)
        if settings.elastic is None:
            return settings.queue_order is QueueOrder.SHORTEST
        acts = scale_mode(settings) is Mode.ACT
        return acts or settings.queue_order is QueueOrder.SHORTEST

    def priority(self, tracked: TrackedJob) -> int:
        """Return the priority of a job, cached until the job or the PriorityClasses change."""
        cached = self._priorities.get(tracked.job.uid)
        if cached is None or cached[0] is not tracked.job:
            cached = (tracked.job, self._cluster.priority(tracked.job))
            self._priorities[tracked.job.uid] = cached
        return cached[1]

    def class_of(self, job: TrainingJob) -> str:
        """Return the name of the PriorityClass of a job, or an empty string."""
        return priority_class(job, self._cluster.classes).name

    def record(self, tracked: TrackedJob) -> None:
        """Record the decision on a job."""
        uid = tracked.job.uid
        was_queued, is_queued = uid in self._queued, tracked.queued
        self._moved |= is_queued != was_queued
        if is_queued or was_queued:
            self._renewal_basis = None
        if is_queued:
            if tracked.turns_used is None:
                tracked.turns_used = self._initial_turns(tracked)
            if not was_queued:
                self._shown[uid] = _rounded(len(self._queued))  # until the next update
            self._queued[uid] = tracked
        else:
            self._queued.pop(uid, None)
            tracked.turns_used = None
        if self._cluster.claim_tracker.autoscaled:
            self.asks.record(tracked)

    def _initial_turns(self, tracked: TrackedJob) -> int:
        """Return the number of turns that a job counts as used when it enters the queue.

        It is the maximum among the jobs ahead of it. Otherwise new jobs could forever delay the
        next turn of a job that has had a turn.
        """
        key = self.key(tracked)
        jobs = (job for job in self._queued.values() if job.turns_used)
        ahead = (job.turns_used or 0 for job in jobs if self.key(job) < key)
        return max(ahead, default=0)

    def observe(self, tracked: TrackedJob) -> None:
        """Record a changed job: its end may change the order of the jobs of its series.

        The duration of a job that kfext stopped is unknown: its status has only its last start.
        """
        if tracked.job.run_seconds is None:
            return
        state = tracked.state
        stopped = state.move.at > 0 or state.stop.at > 0
        stopped |= state.scale.changed_at > 0 and starts_anew(tracked.job)
        if not stopped:
            self._moved |= self.durations.observe(tracked.job)

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._priorities.pop(uid, None)
        self.durations.forget(uid)
        self._shown.pop(uid, None)
        self._cluster.holds.release(uid)
        if self._cluster.claim_tracker.autoscaled:
            self.asks.forget(uid)
        if self._queued.pop(uid, None) is not None:
            self._moved = True
            self._renewal_basis = None

    def queued(self) -> list[TrackedJob]:
        """Return the jobs in the queue, in order."""
        queued = (tracked for tracked in self._queued.values() if tracked.queued)
        return sorted(queued, key=self.key)

    def begin_round(self) -> Iterator[TrackedJob]:
        """Offer free capacity; yield the waiting jobs that it may help."""
        self._break_is_offered = self.reservations.on_break
        self.quotas.offer()
        offer, reservation = self._cluster.offer(), self.reservations.current
        # Whether the retried jobs all wait for the operator to create pods.
        self._only_operator_is_free = offer.retried <= {("", REASON_WAITING_FOR_OPERATOR)}
        self._moved |= ANY in offer.retried  # a changed TrainingPolicy may change the order
        self._moved, self.usage.moved = self._moved or self.usage.moved, False
        if not (offer.rows or offer.retried):
            return
        self.reservations.record_offer(offer)
        reserved = reservation.claims if reservation else ()
        gained = Gained(self._cluster.ledger, offer.rows, ignoring=reserved)
        for tracked in tuple(self._cluster.jobs.values()):
            if tracked.waiting and (offer.retries(tracked) or self._may_help(gained, tracked)):
                yield tracked

    def _may_help(self, gained: Gained, tracked: TrackedJob) -> bool:
        """Return whether a job is decided on again: it may fit, or its reservation may change.

        A job with gated pods or with a hold is always decided on again.
        """
        if not tracked.job.suspend or self._cluster.holds.claims_of(tracked.job.uid):
            return True
        if self.reservations.holds(tracked):
            return True
        lowest = lowest_class(tracked.job, self._cluster.classes)
        preempting = lowest.value if lowest.preempts else None
        return gained.may_help(tracked.job.groups, preempting=preempting)

    def still_waits_for_operator(self, tracked: TrackedJob) -> bool:
        """Return whether an unchanged job again waits for the operator to create pods.

        After the first jobs of a round start, the operator again has too many pods to create.
        """
        verdict = tracked.verdict
        waited = verdict is not None and verdict.reason == REASON_WAITING_FOR_OPERATOR
        return waited and self._only_operator_is_free and self._cluster.backlog.crowd > 0

    # --- the reservation ------------------------------------------------------------------------

    def renew_reservation(self, *, now: float) -> TrackedJob | None:
        """Renew the reservation at the end of a round; a break ends with its round.

        Return the holder of the changed reservation, or its former holder; unchanged: None.
        """
        before, holder = self.reservations.current, self.reservations.holder
        if self._break_is_offered:
            self.reservations.on_break = self._break_is_offered = False
            self._renewal_basis = None
        if self.reservations.is_over(now=now):
            self.reservations.end_turn(now=now)
        elif not self.reservations.on_break:
            self._renew_reservation(now=now)
        return None if self.reservations.current == before else self.reservations.holder or holder

    def _renew_reservation(self, *, now: float) -> TrackedJob | None:
        """Grant the reservation to the job that is due for it; return the holder if it changed.

        A different job becomes due only after a decision on a queued job (such as the decision when
        `reserveAfter` ends), or when capacity is freed or a deadline changes.
        """
        basis = (self._cluster.ledger.gains, self._cluster.ends_version)
        if basis == self._renewal_basis:
            return None
        self._renewal_basis = basis
        due = [job for job in self._queued.values() if self.reservations.is_due(job, now=now)]
        due.sort(key=self._reservation_turn)
        renewed = self.reservations.renew(due, now=now)
        if self.reservations.unfinished:
            self._renewal_basis = None
        return self.reservations.holder if renewed else None

    def renew_reservation_after(self, tracked: TrackedJob, *, now: float) -> TrackedJob | None:
        """Renew the reservation after a decision, before the next job may take the capacity."""
        holder = self.reservations.holder
        if self.reservations.holds(tracked):
            return self._renew_reservation(now=now)
        if not self.reservations.is_due(tracked, now=now):
            return None
        if holder and self._reservation_turn(holder) < self._reservation_turn(tracked):
            return None
        return tracked if self.reservations.grant(tracked, now=now) else None

    def _reservation_turn(self, tracked: TrackedJob) -> tuple[int, QueueKey]:
        """Return the sort key of a job among the jobs that are due for the reservation."""
        return (tracked.turns_used or 0, self.key(tracked))

    # --- input for decisions and messages ---------------------------------------------------------

    def context(self, tracked: TrackedJob, *, now: float) -> QueueContext:
        """Return the state of the queue around a job."""
        job = tracked.job
        lowest = lowest_class(job, self._cluster.classes)
        holder, reservation = self.reservations.holder, self.reservations.current
        return QueueContext(
            priority=lowest.value,
            preempts=lowest.preempts,
            reservation=reservation,
            reserved_for=visible_names([holder.job] if holder else [], viewer=job) or "another job",
            awaited=self._awaited_jobs(reservation, viewer=job) if reservation else "",
            estimated=reservation is not None and self._is_estimated(reservation),
            reservable_in=self.reservations.due_in(tracked, now=now),
            may_use_reserved=reservation is not None
            and (holder is None or self.key(tracked) <= self.key(holder)),
            crowded=self._cluster.backlog.crowd,
            draining=bool(self._cluster.draining),
            autoscaler=self.autoscaler,
            nodes=self.asks.view(tracked) if self._cluster.claim_tracker.autoscaled else NO_NODES,
            held=self._cluster.holds.claims_of(job.uid),
            quota=self.quotas.view_of(tracked, self._cluster.classes),
            disturbed=self._disturbance(job.namespace, now=now),
            plain_pods=self._cluster.plain_pods,
            duration=lambda: self.durations.remaining(tracked.job, now=now),
            typical=lambda: self.durations.typical(tracked.job),
            ends=lambda: self._ends(now),
        )

    def _disturbance(self, namespace: str, *, now: float) -> str:
        """Return what may disturb a plan, as `QueueContext.disturbed`."""
        if self._cluster.plain_pods or self._cluster.claim_tracker.has_unpinned_pending(now):
            return "pods"
        return "quota" if self.quotas.changes(namespace) else ""

    def _is_estimated(self, reservation: Reservation) -> bool:
        """Return whether the end of a reservation follows from progress, not from a deadline."""
        awaited = (self._cluster.jobs.get(uid) for uid in reservation.waits_for)
        deadlines = (tracked.job.ends for tracked in awaited if tracked)
        return any(deadline is None or deadline > reservation.until for deadline in deadlines)

    def _ends(self, now: float) -> Mapping[str, float]:
        """Return the expected ends of running jobs by uid, computed once in a tick."""
        if self._expected is None:
            jobs, durations = (job.job for job in self._cluster.jobs.values()), self.durations
            self._expected = {
                job.uid: min(now + durations.remaining(job, now=now), job.ends or math.inf)
                for job in jobs
                if durations.runs(job)
            }
        return self._expected

    def limits(self, tracked: TrackedJob, settings: Settings, *, now: float) -> Limits:
        """Return the present limits on the placement of a job."""
        tracker = self._cluster.claim_tracker
        awaited = self.asks.awaited_nodes(tracked) if tracker.autoscaled else frozenset()
        return tracker.limits(tracked, settings, now=now, awaited=awaited)

    def next_position_update(self) -> float:
        """Return when to update the shown positions, in monotonic seconds; infinity means never."""
        return self._next_update_at if self._moved and self._queued else math.inf

    def update_positions(self, *, at: float) -> Iterator[TrackedJob]:
        """Yield the queued jobs that show an outdated position, and record their new positions.

        `at`: in monotonic seconds.
        """
        if self.next_position_update() > at:
            return
        self._moved, self._next_update_at = False, at + _POSITION_SECONDS
        for ahead, tracked in enumerate(self.queued()):
            shown = self._shown.get(tracked.job.uid)
            if shown is None or abs(shown - ahead) > (ahead // 10 if ahead > _EXACT else 0):
                self._shown[tracked.job.uid] = _rounded(ahead)
                yield tracked

    def ahead(self, tracked: TrackedJob) -> int | None:
        """Return the shown number of jobs ahead of a job, or None for a job that is not queued."""
        return self._shown.get(tracked.job.uid) if tracked.phase == QUEUED else None

    def shown_verdict(self, tracked: TrackedJob) -> Verdict | None:
        """Return the verdict on a job, with its position in the queue."""
        ahead = self.ahead(tracked)
        if tracked.verdict is None or ahead is None:
            return tracked.verdict
        reservation, nodes, awaited = self.reservations.current, "", ""
        verdict, hold = tracked.verdict, self._cluster.holds.hold_of(tracked.job.uid)
        if hold is not None and (stopping := self._awaited_jobs(hold, viewer=tracked.job)):
            message = f"{stopping} {has(stopping)} to save and stop for it; {verdict.message}"
            verdict = Verdict(REASON_PREEMPTING, message)
        if reservation is not None and self.reservations.holds(tracked):
            nodes = listed(reservation.nodes, noun="nodes")
            awaited = self._awaited_jobs(reservation, viewer=tracked.job)
        behind = self.why_behind(tracked) if ahead else ""
        return in_line(
            verdict, ahead=ahead, exact=_EXACT, kept_nodes=nodes, awaited=awaited, behind=behind
        )

    def why_behind(self, tracked: TrackedJob) -> str:
        """Return the reason why jobs are ahead of a waiting job, as a clause."""
        if self.usage.on and (behind := self.usage.why_behind(tracked)):
            return behind
        counts = self._counts_duration(tracked)
        duration = self.durations.known(tracked.job) if counts else None
        return why_there(self.priority(tracked), duration)

    def _awaited_jobs(self, hold: Hold, *, viewer: TrainingJob) -> str:
        """Return the names of the jobs that a hold waits for, as the users of `viewer` see them."""
        awaited = (self._cluster.jobs.get(uid) for uid in hold.waits_for)
        return visible_names([tracked.job for tracked in awaited if tracked], viewer=viewer)


def _rounded(ahead: int) -> int:
    unit = 1 if ahead <= _EXACT else 5 if ahead < 100 else 10 ** (len(str(ahead)) - 2)
    return round(ahead / unit) * unit


def visible_names(jobs: Sequence[TrainingJob], *, viewer: TrainingJob) -> str:
    """Return the names of the jobs in the namespace of `viewer`, and the number of the other jobs.

    The users of a job may not be allowed to see other namespaces.
    """
    visible = sorted(job.title for job in jobs if job.namespace == viewer.namespace)
    return listed_with_others(visible, others=len(jobs) - len(visible))
