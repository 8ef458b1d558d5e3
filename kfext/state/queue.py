"""The queue: which job comes first, what is reserved for it, and the position of each job.

Everything here is derived: a new process computes the same order and the same reservation.
"""

from collections.abc import Callable, Iterator, Sequence

from kfext.core.lifecycle.situation import QueueContext
from kfext.core.queue import order
from kfext.core.queue.no_fit import Gained, NoFitCache
from kfext.core.queue.order import in_line
from kfext.core.queue.reservation import Reservation
from kfext.core.words import listed, listed_with_others
from kfext.model.job import TrainingJob
from kfext.model.priority import PriorityClass
from kfext.model.verdict import Verdict
from kfext.names import QUEUED
from kfext.state.cluster import Cluster
from kfext.state.quotas import Quotas
from kfext.state.reservations import Promises, ReservationManager
from kfext.state.settings import JobSettings
from kfext.state.tracked_job import TrackedJob

_EXACT = 10
"""This many jobs at the head of the queue show their exact position; the others are accurate to a
tenth. Otherwise each start of a job would rewrite the position of all others."""


class Queue:
    """The queue over a cluster's jobs, with the one reservation there can be.

    `now` is in epoch seconds.
    """

    def __init__(self, cluster: Cluster, settings: Callable[[TrackedJob], JobSettings]) -> None:
        self.classes: dict[str, PriorityClass] = {}
        self.quotas = Quotas(cluster)
        self.no_fits = NoFitCache()
        self.autoscaler = False
        self.promises = Promises(cluster.ledger, cluster.wake)
        self._reservations = ReservationManager(cluster, settings, self.promises)
        self._cluster = cluster
        self._queued: dict[str, TrackedJob] = {}
        self._turns: dict[str, tuple[TrainingJob, order.Turn]] = {}
        self._shown: dict[str, int] = {}
        self._moved = False
        self._looked_at: tuple[int, int] | None = None
        self._break_is_offered = False

    def observe_class(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        """Take in a PriorityClass as it stands; None for `new` when it is gone."""
        if old is not None:
            self.classes.pop(old.name, None)
        if new is not None:
            self.classes[new.name] = new
        self._turns.clear()
        self._moved = True
        self._cluster.recount_priorities()
        self._cluster.mark_queue()

    def observe_autoscaler(self, *, present: bool) -> None:
        """Take in whether the cluster has an autoscaler."""
        if present != self.autoscaler:
            self.autoscaler = present
            self._cluster.mark_queue()

    def turn(self, tracked: TrackedJob) -> order.Turn:
        """Return the sort key of a job, computed again only if it may have changed."""
        known = self._turns.get(tracked.job.uid)
        if known is None or known[0] is not tracked.job:
            known = (tracked.job, order.turn(tracked.job, self.classes))
            self._turns[tracked.job.uid] = known
        return known[1]

    def note(self, tracked: TrackedJob) -> None:
        """Take in what has just been decided for a job."""
        uid = tracked.job.uid
        was, now = uid in self._queued, tracked.queued
        if now != was:
            self._moved = True
        if now or was:
            self._looked_at = None
        if now:
            if tracked.turns is None:
                tracked.turns = self._round(tracked)
            self._queued[uid] = tracked
        else:
            self._queued.pop(uid, None)
            tracked.turns = None

    def _round(self, tracked: TrackedJob) -> int:
        """Return the round in which a job that enters the queue takes its turns.

        It is the latest of those ahead of it: else jobs that come one after the other would keep
        one that has had its turn from the next one for ever.
        """
        own = self.turn(tracked)
        ahead = (one.turns for one in self._queued.values() if one.turns and self.turn(one) < own)
        return max(ahead, default=0)

    def forget(self, uid: str) -> None:
        """Take in that a job is gone."""
        self._turns.pop(uid, None)
        self._shown.pop(uid, None)
        self.promises.drop(uid)
        if self._queued.pop(uid, None) is not None:
            self._moved = True
            self._looked_at = None

    def queued(self) -> list[TrackedJob]:
        """Return the jobs in the queue, in order."""
        queued = (tracked for tracked in self._queued.values() if tracked.queued)
        return sorted(queued, key=self.turn)

    def reservable_in(self, tracked: TrackedJob, *, now: float) -> float:
        """Return in how many seconds a job may have a reservation."""
        return self._reservations.due_in(tracked, now=now)

    def begin_round(self) -> Iterator[TrackedJob]:
        """Put on offer what has come free; yield the waiting jobs that it may help.

        A break of the reservations has been offered to them by the end of this round.
        """
        self._break_is_offered = self._reservations.on_break
        self.quotas.offer()
        offer, kept = self._cluster.offer(), self.reservation
        if not (offer.rows or offer.resumed):
            return
        self._reservations.note_offer(offer)
        gained = Gained(self._cluster.ledger, offer.rows, ignoring=kept.claims if kept else ())
        for tracked in tuple(self._cluster.jobs.values()):
            if tracked.waiting and (offer.resumes(tracked) or self._may_help(gained, tracked)):
                yield tracked

    def _may_help(self, gained: Gained, tracked: TrackedJob) -> bool:
        """Return whether a job is asked again: it may fit now, or what is kept for it may change.

        Whether it helps a job with gated pods, or with a promise, is not judged.
        """
        if not tracked.job.suspend or self.promises.of(tracked.job.uid):
            return True
        if self._reservations.holds(tracked):
            return True
        own = order.priority_class(tracked.job, self.classes)
        return gained.may_help(tracked.job.groups, preempting=own.value if own.preempts else None)

    # --- the reservation ------------------------------------------------------------------------

    @property
    def reservation(self) -> Reservation | None:
        """What is reserved for a job of the queue."""
        return self._reservations.kept

    def reservation_is_outdated(self, *, now: float) -> bool:
        """Return whether something changed since the reservation was computed."""
        return self._reservations.is_outdated(now=now)

    def reserved_for(self, *, now: float) -> float:
        """Return for how many seconds capacity has been reserved without a break."""
        since = self._reservations.since
        return 0.0 if since is None else now - since

    def begin_tick(self) -> None:
        """Allow as many searches for a reservation as one tick may have."""
        self._reservations.searches = 0

    @property
    def may_search(self) -> bool:
        """Whether another search for a reservation may be made in this tick."""
        return self._reservations.may_search

    @property
    def reservation_is_unfinished(self) -> bool:
        """Whether jobs that are due for the reservation have not been looked at yet."""
        return self._reservations.unfinished

    @property
    def reservations_on_break(self) -> bool:
        """Whether nothing is reserved until every job that waits was looked at."""
        return self._reservations.on_break

    def begin_break(self) -> None:
        """Take over a break of the reservations from an earlier planner."""
        self._reservations.on_break = True

    def adopt(
        self, reservation: Reservation, *, outdated: bool, held_for: float, now: float
    ) -> None:
        """Take over the reservation of an earlier planner."""
        self._reservations.adopt(reservation, outdated=outdated, held_for=held_for, now=now)

    def renew_reservation(self, *, now: float) -> TrackedJob | None:
        """Renew the reservation at the end of a round; a break ends once its round is over.

        Return the job that has it now, or had it, if that changed.
        """
        kept, holder = self.reservation, self._reservations.holder
        if self._break_is_offered:
            self._reservations.on_break = self._break_is_offered = False
            self._looked_at = None
        if self._reservations.is_over(now=now):
            self._reservations.end_turn(now=now)
        elif not self._reservations.on_break:
            self._renew_reservation(now=now)
        return None if self.reservation == kept else self._reservations.holder or holder

    def _renew_reservation(self, *, now: float) -> TrackedJob | None:
        """Give the reservation to the job that is due for it; return the holder if it changed.

        The due job changes only after a decision on a queued job (there is one when `reserveAfter`
        ends) or with the capacity of the cluster.
        """
        basis = (self._cluster.ledger.gains, self._cluster.ends_version)
        if basis == self._looked_at:
            return None
        self._looked_at = basis
        due = [one for one in self._queued.values() if self._reservations.is_due(one, now=now)]
        due.sort(key=self._reservation_turn)
        renewed = self._reservations.renew(due, now=now)
        if self._reservations.unfinished:
            self._looked_at = None
        return self._reservations.holder if renewed else None

    def renew_reservation_after(self, tracked: TrackedJob, *, now: float) -> TrackedJob | None:
        """Renew the reservation after a decision, before the next job may take its capacity."""
        holder = self._reservations.holder
        if self._reservations.holds(tracked):
            return self._renew_reservation(now=now)
        if not self._reservations.is_due(tracked, now=now):
            return None
        if holder and self._reservation_turn(holder) < self._reservation_turn(tracked):
            return None
        renewed = self._reservations.give(tracked, now=now)
        return tracked if renewed else None

    def _reservation_turn(self, tracked: TrackedJob) -> tuple[int, order.Turn]:
        """Return the sort key of a job among those that are due for the reservation."""
        return (tracked.turns or 0, self.turn(tracked))

    def reservation_failures(self) -> list[tuple[TrackedJob, Exception]]:
        """Return the jobs for which no reservation could be sought, with the error; each once."""
        return self._reservations.failures()

    # --- input for decisions and messages ---------------------------------------------------------

    def context(self, tracked: TrackedJob, *, now: float) -> QueueContext:
        """Return what surrounds a job."""
        own = order.priority_class(tracked.job, self.classes)
        holder, kept = self._reservations.holder, self.reservation
        return QueueContext(
            priority=own.value,
            preempts=own.preempts,
            reservation=kept,
            reserved_for=_named([holder.job] if holder else [], to=tracked.job) or "another job",
            awaited=self._awaited(kept, to=tracked.job) if kept else "",
            reservable_in=self._reservations.due_in(tracked, now=now),
            ahead=kept is not None and (holder is None or self.turn(tracked) <= self.turn(holder)),
            crowded=self._cluster.backlog.crowd,
            autoscaler=self.autoscaler,
            promised=self.promises.of(tracked.job.uid),
            quota=self.quotas.of(tracked, self.classes),
        )

    def moved(self) -> Iterator[TrackedJob]:
        """Yield the queued jobs whose position is not the one last shown, and record it."""
        if not self._moved:
            return
        self._moved = False
        for ahead, tracked in enumerate(self.queued()):
            shown = self._shown.get(tracked.job.uid)
            if shown is None or abs(shown - ahead) > max(0, ahead - _EXACT) // 10:
                self._shown[tracked.job.uid] = ahead
                yield tracked

    def sentence(self, tracked: TrackedJob) -> Verdict | None:
        """Return why a job is in its phase, with its position in the queue."""
        ahead = self._shown.get(tracked.job.uid)
        if tracked.phase != QUEUED or tracked.verdict is None or ahead is None:
            return tracked.verdict
        kept, nodes, awaited = self.reservation, "", ""
        if kept is not None and self._reservations.holds(tracked):
            nodes, awaited = listed(kept.nodes, of="nodes"), self._awaited(kept, to=tracked.job)
        return in_line(
            tracked.verdict, ahead=ahead, exact=_EXACT, kept_nodes=nodes, awaited=awaited
        )

    def _awaited(self, kept: Reservation, *, to: TrainingJob) -> str:
        """Return the jobs that a reservation waits for, as the users of `to` may see them."""
        known = (self._cluster.jobs.get(uid) for uid in kept.waits_for)
        return _named([one.job for one in known if one], to=to)


def _named(jobs: Sequence[TrainingJob], *, to: TrainingJob) -> str:
    """Return the names of jobs in the namespace of the job `to`, and the number of the others.

    Who may see a job need not be allowed to know what is in other namespaces.
    """
    own = sorted(job.title for job in jobs if job.namespace == to.namespace)
    return listed_with_others(own, others=len(jobs) - len(own))
