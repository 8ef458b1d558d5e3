"""The queue as the loop sees it: who comes first, what is kept for whom, and who is at which place.

Everything here is derived: a new process comes to the same order and the same reservation.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kfext.controller.allowances import Allowances
from kfext.controller.cluster import Cluster
from kfext.controller.entry import Entry
from kfext.controller.settings import JobSettings
from kfext.core import queue
from kfext.core.backfill import reserve
from kfext.core.explain import in_line, listed
from kfext.core.gang import members_of
from kfext.core.refusals import Refusals
from kfext.core.reservation import Reservation
from kfext.core.room import WAITS_FOR_ROOM
from kfext.core.situation import Around
from kfext.model.priority import PriorityClass
from kfext.model.verdict import Verdict
from kfext.names import QUEUED

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
        self.reservation: Reservation | None = None
        self.autoscaler = False
        self._cluster = cluster
        self._settings = settings
        self._wall = wall
        self._queued: dict[str, Entry] = {}
        self._moved = False
        self._version = 0
        self._gains = -1

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
        if (entry.phase == QUEUED) != (uid in self._queued):
            self._moved = True
        if entry.phase == QUEUED:
            self._queued[uid] = entry
        else:
            self._queued.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Take in that a job is gone."""
        if self._queued.pop(uid, None) is not None:
            self._moved = True

    def queued(self) -> list[Entry]:
        """Return the jobs in the queue, first who comes first."""
        return sorted(self._queued.values(), key=self.turn)

    # --- the reservation ------------------------------------------------------------------------

    def keep_room(self) -> Entry | None:
        """Bring the reservation to whom it is due now; return who has to be told of it."""
        holder = self._first_in_need()
        kept = self.reservation
        same = (kept.job_uid if kept else "") == (holder.job.uid if holder else "")
        if same and self._cluster.ledger.gains == self._gains:
            return None
        ledger, gains = self._cluster.ledger, self._cluster.ledger.gains
        self.reservation = self._reserve(holder) if holder else None
        old = kept.claims if kept else {}
        new = self.reservation.claims if self.reservation else {}
        for key in old.keys() - new.keys():
            ledger.drop(key)
        for key, claim in new.items():
            ledger.claim(key, claim)
        if ledger.gains != gains:
            self._cluster.mark_queue()  # what is no longer kept is room for others
        self._gains = ledger.gains
        return holder if self.reservation != kept else None

    def holds(self, entry: Entry) -> bool:
        """Return whether it is this job that room is kept for."""
        return self.reservation is not None and self.reservation.job_uid == entry.job.uid

    def needs_room(self, entry: Entry) -> bool:
        """Return whether room must be kept for a job, unless one before it needs it too."""
        if entry.busy or entry.phase != QUEUED or entry.verdict is None:
            return False
        if entry.verdict.reason not in WAITS_FOR_ROOM:
            return False
        waited = self._wall() - max(entry.job.created, entry.state.suspended_at)
        return waited >= self._settings(entry).placement.reserve_after

    def _first_in_need(self) -> Entry | None:
        return min(filter(self.needs_room, self._queued.values()), key=self.turn, default=None)

    def _reserve(self, holder: Entry) -> Reservation | None:
        settings, now = self._settings(holder), self._wall()
        entries = self._cluster.jobs.values()
        return reserve(
            holder.job.uid,
            members_of(holder.job),
            self._cluster.ledger,
            ends={e.job.uid: ends for e in entries if (ends := e.job.ends) is not None},
            one_node=settings.colocation == "required",
            excluded=[node for node, until in holder.state.excluded.items() if until > now],
            ignoring=self.reservation.claims if self.reservation else (),
        )

    # --- what a job is told -----------------------------------------------------------------------

    def around(self, entry: Entry) -> Around:
        """Return what goes on around a job."""
        own = queue.priority_class(entry.job, self.classes)
        around: dict[str, Any] = {}
        if self.reservation is not None:
            holder = self._cluster.jobs.get(self.reservation.job_uid)
            around = {
                "reservation": self.reservation,
                "reserved_for": _named(holder) if holder else "another job",
                "awaited": self._awaited(self.reservation),
                "ahead": holder is None or self.turn(entry) <= self.turn(holder),
            }
        return Around(
            priority=own.value,
            preempts=own.preempts,
            outstanding=self._cluster.outstanding,
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
        if kept is not None and kept.job_uid == entry.job.uid:
            nodes, awaited = listed(kept.nodes), self._awaited(kept)
        return in_line(
            entry.verdict, ahead=entry.ahead, exact=_EXACT, kept_nodes=nodes, awaited=awaited
        )

    def _awaited(self, kept: Reservation) -> str:
        """Return the names of the jobs that a reservation waits for."""
        known = (self._cluster.jobs.get(uid) for uid in kept.waits_for)
        return listed(sorted(_named(entry) for entry in known if entry), of="jobs")


def _named(entry: Entry) -> str:
    job = entry.job
    return f"{job.kind.name} {job.namespace}/{job.name}"
