"""The one reservation there can be: to whom it is due, and its claims on the ledger."""

from collections.abc import Callable, Hashable, Iterable

from kfext.core.lifecycle.room import WAITS_FOR_ROOM
from kfext.core.placement.gang import members_of
from kfext.core.queue.backfill import reserve
from kfext.core.queue.refusals import shape_of
from kfext.core.queue.reservation import Reservation
from kfext.names import QUEUED, REASON_QUOTA, REASON_WAITING_FOR_OPERATOR
from kfext.state.cluster import Cluster
from kfext.state.entry import Entry
from kfext.state.settings import JobSettings

_KEEPS = WAITS_FOR_ROOM | {REASON_QUOTA, REASON_WAITING_FOR_OPERATOR}
"""Reasons for which a job that has a reservation does not lose it: they pass."""


class Keeper:
    """Keeps room for the first job of the queue that has waited long enough. `wall` is in seconds.

    What it keeps is found anew only when something of it has changed.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        settings: Callable[[Entry], JobSettings],
        wall: Callable[[], float],
    ) -> None:
        self.kept: Reservation | None = None
        self._cluster = cluster
        self._settings = settings
        self._wall = wall
        self._basis: tuple[object, ...] = ()
        self._known: tuple[int, int] = (-1, -1)
        self._nowhere: set[Hashable] = set()

    @property
    def holder(self) -> Entry | None:
        """The job that room is kept for."""
        return self._cluster.jobs.get(self.kept.job_uid) if self.kept else None

    def holds(self, entry: Entry) -> bool:
        """Return whether it is this job that room is kept for."""
        return self.kept is not None and self.kept.job_uid == entry.job.uid

    def needs(self, entry: Entry) -> bool:
        """Return whether room is due to a job, unless one before it needs it too."""
        if entry.busy or entry.phase != QUEUED or entry.verdict is None:
            return False
        if entry.verdict.reason not in (_KEEPS if self.holds(entry) else WAITS_FOR_ROOM):
            return False
        waited = self._wall() - max(entry.job.created, entry.state.suspended_at)
        return waited >= self._settings(entry).placement.reserve_after

    def renew(self, needy: Iterable[Entry]) -> bool:
        """Keep room for the first of some jobs for whom that is possible; return what changed."""
        found = next((kept for entry in needy if (kept := self._of(entry)) is not None), None)
        if found == self.kept:
            return False
        ledger, gains = self._cluster.ledger, self._cluster.ledger.gains
        old = self.kept.claims if self.kept else {}
        new = found.claims if found else {}
        self.kept = found
        for key in old.keys() - new.keys():
            ledger.drop(key)
        for key, claim in new.items():
            ledger.claim(key, claim)
        if ledger.gains != gains:
            self._cluster.mark_queue()  # what is no longer kept is room for others
        return True

    def _of(self, entry: Entry) -> Reservation | None:
        """Return what would be kept for a job, None if no end of a job would make room for it."""
        settings, now = self._settings(entry), self._wall()
        known = (self._cluster.ledger.gains, self._cluster.ends_version)
        if known != self._known:
            self._known = known
            self._nowhere.clear()
            self._basis = ()
        excluded = tuple(node for node, until in entry.state.excluded.items() if until > now)
        one_node = settings.colocation == "required"
        basis = (id(entry.job), one_node, excluded)
        if self.holds(entry) and basis == self._basis:
            return self.kept
        shape = (shape_of(entry.job), one_node, excluded)
        if shape in self._nowhere:
            return None
        jobs = self._cluster.jobs.values()
        found = reserve(
            entry.job.uid,
            members_of(entry.job),
            self._cluster.ledger,
            ends={one.job.uid: ends for one in jobs if (ends := one.job.ends) is not None},
            one_node=one_node,
            excluded=excluded,
            ignoring=self.kept.claims if self.kept else (),
        )
        if found is None:
            self._nowhere.add(shape)
        else:
            self._basis = basis
        return found
