"""The starvation guard: which jobs give up workers for the first job of the queue.

Source: DRAGON's first phase, with the fulfilment of its first version and all or nothing.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kfext import names
from kfext.core.elastic import fewest_workers
from kfext.core.placement.slots import Places
from kfext.core.queue import order
from kfext.core.scale import parameters
from kfext.core.scale.guard import Giver, givers_of
from kfext.core.scale.stand_down import open_range
from kfext.core.settings.table import Settings
from kfext.state.queue import Queue
from kfext.state.scaling.room import ScaleRoom
from kfext.state.scaling.scaled_job import ScaledJob
from kfext.state.tracked_job import TrackedJob


@dataclass(frozen=True, slots=True)
class Rescue:
    """What is given for a job that waits: the sizes by uid, and where it is to go then."""

    waiting: TrackedJob
    workers: int
    sizes: Mapping[str, int]


class Guard:
    """Decides for whom workers are given up, and by whom. `now` is in epoch seconds."""

    def __init__(
        self, queue: Queue, room: ScaleRoom, settings_of: Callable[[TrackedJob], Settings]
    ) -> None:
        self._queue = queue
        self._room = room
        self._settings_of = settings_of
        self._in_vain: tuple[object, ...] = ()

    def due(self, *, now: float) -> TrackedJob | None:
        """Return the job that has waited long enough, None if there is none.

        Only the first of those that wait for room is served, so that the order of arrival holds.
        """
        for tracked in self._queue.queued():
            verdict = tracked.verdict
            if verdict is None or verdict.reason != names.REASON_NO_ROOM or tracked.job.excess:
                continue
            wait = parameters.parameter(self._settings_of(tracked), "wait")
            return tracked if tracked.settled and tracked.waits(now) >= wait else None
        return None

    def rescue(
        self, waiting: TrackedJob, candidates: Collection[ScaledJob], *, now: float
    ) -> Rescue | None:
        """Return what `candidates` give up for the job that is due, None if that is nothing.

        All of the job has to fit then, with the fewest workers that it may have, or nobody gives.
        """
        settings = self._settings_of(waiting)
        workers = fewest_workers(waiting.job, open_range(waiting.job, settings))
        givers = self._givers(waiting, candidates)
        limits = self._room.limits(waiting, settings, now=now)
        basis = (waiting.job, workers, limits, self._room.version, tuple(givers))
        if not givers or basis == self._in_vain:
            return None

        def fits(sizes: Mapping[str, int]) -> bool:
            return self.places(waiting, workers, sizes, now=now) is not None

        priority = self._priority(waiting)
        sizes = None if fits({}) else givers_of(givers, fits, priority=priority)
        if not sizes:
            self._in_vain = basis
            return None
        return Rescue(waiting, workers, sizes)

    def places(
        self, waiting: TrackedJob, workers: int, sizes: Mapping[str, int], *, now: float
    ) -> Places | None:
        """Return the places of a job that waits once others, by uid, have so many workers."""
        settings = self._settings_of(waiting)
        gone = self._room.freed(sizes)
        return self._room.waiting_fits(waiting, settings, workers, now=now, gone=gone)

    def still_needed(self, rescue: Rescue, *, now: float) -> bool:
        """Return whether a job that waits still needs all that is given up for it, and no more."""
        waiting = rescue.waiting
        return (
            self.due(now=now) is waiting
            and self.places(waiting, rescue.workers, {}, now=now) is None
            and self.places(waiting, rescue.workers, rescue.sizes, now=now) is not None
        )

    def _givers(self, waiting: TrackedJob, candidates: Collection[ScaledJob]) -> list[Giver]:
        """Return the jobs that may give workers to one that waits, in the order of their uids."""
        across = parameters.parameter(self._settings_of(waiting), "acrossNamespaces")
        found = []
        for one in sorted(candidates, key=lambda one: one.uid):
            job, settings = one.tracked.job, self._settings_of(one.tracked)
            allowed = across and parameters.parameter(settings, "acrossNamespaces")
            if one.sizes.surplus and (allowed or job.namespace == waiting.job.namespace):
                priority = self._priority(one.tracked)
                found.append(Giver(one.uid, priority, one.sizes, one.missed))
        return found

    def _priority(self, tracked: TrackedJob) -> int:
        return order.priority_class(tracked.job, self._queue.classes).value
