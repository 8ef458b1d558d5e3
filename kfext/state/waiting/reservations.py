"""The reservation: capacity on hold for the first job that has waited long enough."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from kfext.core.lifecycle.capacity import NEVER_FITS, WAITS_FOR_CAPACITY
from kfext.core.observed import expecting_tolerations
from kfext.core.placement.gang import Limits, Member, members_of
from kfext.core.placement.place import place
from kfext.core.queue.no_fit import MAX_SHAPES, Gained, shape_of
from kfext.core.queue.reservation import Reservation, reserve
from kfext.core.settings.table import Settings
from kfext.model.replica_group import ReplicaGroup
from kfext.model.timestamps import past
from kfext.model.verdict import Verdict
from kfext.names import REASON_RESERVED, REASON_WAITING_FOR_OPERATOR
from kfext.state.mirror.cluster import ANY, Cluster, Offer
from kfext.state.mirror.tracked_job import Failures, TrackedJob
from kfext.state.waiting.durations import DurationEstimates

KEEPS = WAITS_FOR_CAPACITY | {REASON_WAITING_FOR_OPERATOR}
"""A job that waits for these reasons keeps its reservation: they pass, but a quota may stay."""
RESERVED_SECONDS = 3600.0
"""Capacity is reserved for at most this long without a break, for all holders together."""
_OFFER_SECONDS = 30.0
"""Waiting jobs are decided on again once the time for backfill has grown by more than this."""
MAX_SEARCHES = 4
"""The most searches of one tick; each may take half a second if many jobs run."""


class ReservationManager:
    """Keeps a reservation for the first job of the queue that has waited long enough.

    The reservation is computed again only when its basis has changed. `now` is in epoch seconds.

    `reserved_since`: the epoch time since which capacity is reserved without a break, or None.
    `on_break`: whether nothing is reserved until every waiting job was decided on once.
    `failures`: the errors in searches.
    `unfinished`: whether the last search ended before it reached all jobs that are due.
    `limits` returns the limits on a job's nodes, `usable` the placeholder claims that it may use.

    A break begins when the holder loses its reservation, or after capacity was reserved for too
    long. In the second case the holder comes after the other due jobs.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Callable[[TrackedJob], Settings],
        durations: DurationEstimates,
        *,
        limits: Callable[..., Limits],
        usable: Callable[[TrackedJob], tuple[Hashable, ...]],
    ) -> None:
        self.reserved_since: float | None = None
        self.on_break = self.unfinished = False
        self._searches = 0
        self.failures = Failures()
        self._cluster = cluster
        self._settings = settings
        self._holds = cluster.holds
        self._durations = durations
        self._limits_of, self._usable = limits, usable
        self._basis: tuple[object, ...] = ()
        self._known: tuple[int, int] = (-1, -1)
        self._no_place: dict[Hashable, tuple[ReplicaGroup, ...]] = {}
        self._gained: set[int] = set()
        self._offered_until = -math.inf

    @property
    def current(self) -> Reservation | None:
        """The present reservation, if any."""
        return self._holds.reservation

    @property
    def holder(self) -> TrackedJob | None:
        """The job that has the reservation."""
        return self._cluster.jobs.get(self.current.job) if self.current else None

    def begin_tick(self, *, now: float) -> None:
        """Allow the searches of one tick, and update the expected end of the wait."""
        self._searches = 0
        self._expect_end(now=now)

    def _expect_end(self, *, now: float) -> None:
        """Update the expected end of the wait, and offer capacity if backfill gains time."""
        current = self.current
        if current is None:
            return
        jobs = self._cluster.jobs
        awaited = [jobs[uid] for uid in current.waits_for if uid in jobs]
        ends = [self._durations.expected_end(other.job, now=now) for other in awaited]
        until = max((math.inf if end is None else end for end in ends), default=math.inf)
        backfill_until = -math.inf
        if not self._is_overstayed(current, now=now):
            likely = (self._durations.likely_end(other.job, now=now) for other in awaited)
            backfill_until = max(likely, default=-math.inf)
        if (until, backfill_until) != (current.until, current.backfill_until):
            self._holds.reserve(replace(current, until=until, backfill_until=backfill_until))
        if backfill_until > self._offered_until + _OFFER_SECONDS:
            self._offered_until = backfill_until
            self._cluster.mark_queue(stopped_by=REASON_RESERVED)

    def _is_overstayed(self, current: Reservation, *, now: float) -> bool:
        """Return whether a job that started on reserved nodes takes longer than expected."""
        since = now if self.reserved_since is None else self.reserved_since
        claiming_on = self._cluster.claim_tracker.claiming_on
        uids = {uid for node in current.nodes for uid in claiming_on(node)}
        jobs = (self._cluster.jobs[uid].job for uid in uids)
        return any(job.started > since and self._durations.is_late(job, now=now) for job in jobs)

    @property
    def may_search(self) -> bool:
        """Whether another search is allowed in this tick."""
        return self._searches < MAX_SEARCHES

    def holds(self, tracked: TrackedJob) -> bool:
        """Return whether a job has the reservation."""
        return self.current is not None and self.current.job == tracked.job.uid

    def is_due(self, tracked: TrackedJob, *, now: float) -> bool:
        """Return whether a job is due for the reservation, unless an earlier job needs it too."""
        if not (tracked.settled and tracked.queued):
            return False
        if tracked.job.excess:
            return False  # the job was edited after the verdict
        if tracked.not_started_reason not in (KEEPS if self.holds(tracked) else WAITS_FOR_CAPACITY):
            return False
        return self.due_in(tracked, now=now) <= 0

    def due_in(self, tracked: TrackedJob, *, now: float) -> float:
        """Return the seconds until a job has waited long enough at its present size."""
        placement = self._settings(tracked).placement
        return placement.reserve_after - tracked.queued_seconds(now)

    def reserved_for(self, *, now: float) -> float:
        """Return the seconds that capacity has been reserved without a break."""
        return 0.0 if self.reserved_since is None else now - self.reserved_since

    def renew(self, due: Iterable[TrackedJob], *, now: float) -> bool:
        """Reserve for the first due job, if possible; return whether the reservation changed."""
        candidates = tuple(due)
        if self.current is not None and not any(map(self.holds, candidates)):
            self.unfinished = False
            return self._begin_break(now=now)
        for tracked in () if self.on_break else candidates:
            if not self.may_search:
                self.unfinished = len(self._no_place) < MAX_SHAPES  # else the search never ends
                return False
            reservation = self._reservation_for(tracked, now=now)
            if reservation is not None:
                self.unfinished = False
                return self._set(reservation, now=now)
            if self.holds(tracked):
                self.unfinished = False
                return not self._fits(tracked, now=now) and self._begin_break(now=now)
        self.unfinished = False
        return self._set(None, now=now)

    def record_offer(self, offer: Offer) -> None:
        """Record an offer; only the shapes that it may help are searched again."""
        if ANY in offer.retried:
            self._no_place.clear()
        self._gained.update(offer.rows)

    def _forget_refusals(self) -> None:
        """Forget the refusals of shapes that may get a reservation now.

        This waits until a search that is in progress has ended: else it never reaches later shapes.
        """
        rows, self._gained = sorted(self._gained), set()
        if rows and self._no_place:
            emptied = self._cluster.ledger.without(lambda tier: tier.of_job)
            gained = Gained(emptied, rows)
            self._no_place = {
                shape: groups
                for shape, groups in self._no_place.items()
                if not gained.may_help(groups)
            }

    def grant(self, tracked: TrackedJob, *, now: float) -> bool:
        """Grant a job the reservation if possible; return whether the reservation changed."""
        reservation = None if self.on_break else self._reservation_for(tracked, now=now)
        return reservation is not None and self._set(reservation, now=now)

    def is_over(self, *, now: float) -> bool:
        """Return whether capacity has been reserved for too long."""
        since = self.reserved_since
        return since is not None and now - past(since, now=now) >= RESERVED_SECONDS

    def end_turn(self, *, now: float) -> None:
        """Begin a break after the turn of the holder."""
        if self.holder is not None:
            self.holder.turns_used = (self.holder.turns_used or 0) + 1
        self._begin_break(now=now)

    def is_outdated(self, *, now: float) -> bool:
        """Return whether something changed since the reservation was computed."""
        holder = self.holder
        return (
            self._known != self._versions()
            or holder is None
            or self.current is None
            or self._basis != self._basis_of(holder, self.current, self._limits(holder, now=now))
        )

    def adopt(
        self, reservation: Reservation, *, outdated: bool, held_for: float, now: float
    ) -> None:
        """Continue with the reservation of an earlier planner, until something changes.

        `held_for`: the seconds that capacity has been reserved without a break.
        """
        self._set(reservation, now=now - held_for)
        holder = self.holder
        if holder is not None and not outdated:
            self._known = self._versions()
            self._basis = self._basis_of(holder, reservation, self._limits(holder, now=now))

    def _begin_break(self, *, now: float) -> bool:
        self.on_break = True
        return self._set(None, now=now)

    def _set(self, reservation: Reservation | None, *, now: float) -> bool:
        if reservation == self.current:
            return False
        if reservation is None:
            self.reserved_since = None
        elif self.reserved_since is None:
            self.reserved_since = now
        self._holds.reserve(reservation)
        self._offered_until = -math.inf
        self._expect_end(now=now)
        return True

    def _reservation_for(self, tracked: TrackedJob, *, now: float) -> Reservation | None:
        """Return a reservation that makes a job fit, or None."""
        versions = self._versions()
        if versions != self._known:
            self._known, self._basis = versions, ()
        if not self.unfinished:
            self._forget_refusals()
        current = self.current if self.holds(tracked) else None
        limits = self._limits(tracked, now=now)
        if current is not None and self._basis == self._basis_of(tracked, current, limits):
            return current
        shape = (shape_of(tracked.job), limits)
        if shape in self._no_place:
            return None
        self._searches += 1
        reservation = self._search(tracked, limits, now=now)
        if reservation is None:
            if len(self._no_place) >= MAX_SHAPES:
                self._no_place.clear()
            self._no_place[shape] = tracked.job.groups
        else:
            self._basis = self._basis_of(tracked, reservation, limits)
        return reservation

    def _search(self, tracked: TrackedJob, limits: Limits, *, now: float) -> Reservation | None:
        ledger, uid = self._cluster.ledger, tracked.job.uid
        jobs = (other.job for other in self._cluster.jobs.values())
        expected = ((job.uid, self._durations.expected_end(job, now=now)) for job in jobs)
        ends = {awaited: end for awaited, end in expected if end is not None}
        ignoring = self._usable_claims(tracked)

        def reserved(members: Sequence[Member]) -> Reservation | None:
            return reserve(uid, members, ledger, limits, ends=ends, ignoring=ignoring)

        # A failed search for one job must not keep other jobs from being placed.
        with self.failures.collect_errors_of(tracked):
            members = members_of(tracked.job)
            if (reservation := reserved(members)) is not None:
                return reservation
            tolerating = expecting_tolerations(tracked.job, tracked.state, ledger)
            if tolerating is None or limits.after_failure:
                return None
            placed = place(members, ledger, limits)
            if not isinstance(placed, Verdict) or placed.reason not in NEVER_FITS:
                return None
            return reserved(members_of(tolerating))
        return None

    def _usable_claims(self, tracked: TrackedJob) -> tuple[Hashable, ...]:
        """Return the claims that a job may use: the reservation, its hold and placeholders."""
        reserved = self.current.claims if self.current else ()
        held = self._holds.claims_of(tracked.job.uid)
        if self._cluster.claim_tracker.autoscaled:
            held += self._usable(tracked)
        return (*reserved, *held)

    def _fits(self, tracked: TrackedJob, *, now: float) -> bool:
        """Return whether the holder fits if free capacity that is not offered yet counts too."""
        if not self._cluster.ledger.withholds:
            return False
        ignoring = self._usable_claims(tracked)
        limits, ledger = self._limits(tracked, now=now), self._cluster.ledger
        return not isinstance(
            place(members_of(tracked.job), ledger, limits, ignoring=ignoring), Verdict
        )

    def _versions(self) -> tuple[int, int]:
        """Return a value that changes whenever a different reservation may be possible."""
        return self._cluster.ledger.gains, self._cluster.ends_version

    def _basis_of(
        self, tracked: TrackedJob, reservation: Reservation, limits: Limits
    ) -> tuple[object, ...]:
        """Return the inputs of the reservation of a job, besides free capacity.

        The slots in use count: a job that starts on a partly reserved card uses its reserved GPU.
        """
        demand = self._cluster.claim_tracker.cards.demand
        shared = demand.on(reservation.nodes) if demand.by_job or demand.by_pod else frozenset()
        return tracked.job, limits, shared

    def _limits(self, tracked: TrackedJob, *, now: float) -> Limits:
        return self._limits_of(tracked, self._settings(tracked), now=now)
