"""The queue as the loop sees it: who comes first, what is kept for whom, and who is at which place.

Everything here is derived: a new process comes to the same order and the same reservation.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kfext.core.lifecycle.situation import Around
from kfext.core.queue import order as queue
from kfext.core.queue.position import in_line
from kfext.core.queue.refusals import Refusals
from kfext.core.queue.reservation import Reservation
from kfext.core.words import listed
from kfext.model.priority import PriorityClass
from kfext.model.verdict import Verdict
from kfext.names import QUEUED
from kfext.state.allowances import Allowances
from kfext.state.cluster import Cluster
from kfext.state.entry import Entry
from kfext.state.keeper import Keeper
from kfext.state.settings import JobSettings

_EXACT = 10
"""So many at the head of the queue are told their exact place; the others are to a tenth of it.
Else every job that starts would have the place of all others written."""


class Line:
    """The queue over a cluster's jobs, with the one reservation there can be."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        settings: Callable[[Entry], JobSettings],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.classes: dict[str, PriorityClass] = {}
        self.allowances = Allowances(cluster)
        self.refusals = Refusals()
        self._keeper = Keeper(cluster=cluster, settings=settings, wall=wall)
        self.autoscaler = False
        self._cluster = cluster
        self._queued: dict[str, Entry] = {}
        self._moved = False
        self._looked_at: tuple[int, int] | None = None
        self._version = 0

    def observe_class(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        """Take in a PriorityClass as it stands; None for `new` when it is gone."""
        if old is not None:
            self.classes.pop(old.name, None)
        if new is not None:
            self.classes[new.name] = new
        self._version += 1
        self._moved = True
        self._cluster.mark_queue()

    def turn(self, entry: Entry) -> queue.Turn:
        """Return the place of a job in the order, found anew only if it may have changed."""
        known = entry.turn
        if known is None or known[0] is not entry.job or known[1] != self._version:
            turn = queue.turn(entry.job, self.classes)
            known = entry.turn = (entry.job, self._version, turn)
        return known[2]

    def note(self, entry: Entry) -> None:
        """Take in what has just been decided for a job."""
        uid = entry.job.uid
        was, now = uid in self._queued, entry.phase == QUEUED
        if now != was:
            self._moved = True
        if now or was:
            self._looked_at = None
        if now:
            self._queued[uid] = entry
        else:
            self._queued.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Take in that a job is gone."""
        if self._queued.pop(uid, None) is not None:
            self._moved = True
            self._looked_at = None

    def queued(self) -> list[Entry]:
        """Return the jobs in the queue, first who comes first."""
        return sorted(self._queued.values(), key=self.turn)

    # --- the reservation ------------------------------------------------------------------------

    @property
    def reservation(self) -> Reservation | None:
        """The room that is kept for a job of the queue."""
        return self._keeper.kept

    def keep_room(self) -> Entry | None:
        """Bring the reservation to whom it is due now; return who has to be told of it.

        That changes only when a queued job was decided on, as it is when its time has come, or with
        the room there is.
        """
        basis = (self._cluster.ledger.gains, self._cluster.ends_version)
        if basis == self._looked_at:
            return None
        self._looked_at = basis
        needy = sorted(filter(self._keeper.needs, self._queued.values()), key=self.turn)
        return self._keeper.holder if self._keeper.renew(needy) else None

    def keep_room_after(self, entry: Entry) -> Entry | None:
        """Do so after a decision for one job, before the next in the order may take its room."""
        holder = self._keeper.holder
        if self._keeper.holds(entry):
            return self.keep_room()
        if not self._keeper.needs(entry) or (holder and self.turn(holder) < self.turn(entry)):
            return None
        return self._keeper.holder if self._keeper.renew([entry]) else None

    # --- what a job is told -----------------------------------------------------------------------

    def around(self, entry: Entry) -> Around:
        """Return what goes on around a job."""
        own = queue.priority_class(entry.job, self.classes)
        around: dict[str, Any] = {}
        if self.reservation is not None:
            holder = self._keeper.holder
            around = {
                "reservation": self.reservation,
                "reserved_for": holder.job.title if holder else "another job",
                "awaited": self._awaited(self.reservation),
                "ahead": holder is None or self.turn(entry) <= self.turn(holder),
            }
        return Around(
            priority=own.value,
            preempts=own.preempts,
            crowded=self._cluster.outstanding.crowd,
            autoscaler=self.autoscaler,
            allowance=self.allowances.of(entry, self.classes),
            **around,
        )

    def moved(self) -> Iterator[Entry]:
        """Yield the queued jobs whose place is not what they were told, and note what it is."""
        if not self._moved:
            return
        self._moved = False
        for ahead, entry in enumerate(self.queued()):
            if entry.ahead is None or abs(entry.ahead - ahead) > max(0, ahead - _EXACT) // 10:
                entry.ahead = ahead
                yield entry

    def sentence(self, entry: Entry) -> Verdict | None:
        """Return why a job is as it is, with its place in the queue."""
        if entry.phase != QUEUED or entry.verdict is None or entry.ahead is None:
            return entry.verdict
        kept, nodes, awaited = self.reservation, "", ""
        if kept is not None and self._keeper.holds(entry):
            nodes, awaited = listed(kept.nodes), self._awaited(kept)
        return in_line(
            entry.verdict, ahead=entry.ahead, exact=_EXACT, kept_nodes=nodes, awaited=awaited
        )

    def _awaited(self, kept: Reservation) -> str:
        """Return the names of the jobs that a reservation waits for."""
        known = (self._cluster.jobs.get(uid) for uid in kept.waits_for)
        return listed(sorted(entry.job.title for entry in known if entry), of="jobs")
