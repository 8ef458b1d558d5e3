"""Who grows: jobs get back what they asked for, then more if it pays.

Source: DRAGON's third phase, the least fulfilled first, with the marginal gain of Optimus and
Pollux as its end.
"""

from collections.abc import Callable, Collection, Iterator

from kfext.core import words
from kfext.core.lifecycle.capacity import WAITS_FOR_CAPACITY
from kfext.core.scale import parameters
from kfext.core.scale.change import Cause, Change
from kfext.core.scale.worth import best_size
from kfext.core.settings.resolve import Settings
from kfext.state.progress import JobsProgress
from kfext.state.queue import Queue
from kfext.state.scaling.room import ScaleRoom
from kfext.state.scaling.scaled_job import USUAL_PAUSE, ScaledJob
from kfext.state.tracked_job import TrackedJob

MOST_LOOKED = 16
"""Jobs for which room is looked for in one look."""


class Growth:
    """Decides which jobs get workers. `now` is in epoch seconds."""

    def __init__(
        self,
        queue: Queue,
        room: ScaleRoom,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self._queue = queue
        self._room = room
        self._progress = progress
        self._settings_of = settings_of

    def kept_away(self, *, now: float) -> bool:
        """Return whether a job waits that may soon have capacity reserved for it.

        Until then nothing is kept for it, so a job that grows would be in its way; later what is
        reserved is on the ledger.
        """
        return any(
            one.verdict is not None
            and one.verdict.reason in WAITS_FOR_CAPACITY
            and self._queue.reservable_in(one, now=now) > 0
            for one in self._queue.queued()
        )

    def changes(
        self, candidates: Collection[ScaledJob], *, now: float
    ) -> Iterator[tuple[ScaledJob, Change]]:
        """Yield the jobs that are to grow, the least fulfilled first."""
        hungry = [one for one in candidates if one.sizes.now < one.sizes.most]
        hungry.sort(key=lambda one: (one.sizes.fulfilment, one.tracked.job.created, one.uid))
        for one in hungry[:MOST_LOOKED]:
            workers = self.size(one, now=now)
            if workers > one.sizes.now:
                yield one, _change(one, workers)

    def size(self, one: ScaledJob, *, now: float) -> int:
        """Return the size to which a job is to grow now, its present one if it is not to."""
        settings = self._settings_of(one.tracked)
        room = self._room.most(one, settings, now=now)
        if room > max(one.sizes.asked, one.sizes.now):
            ceiling = parameters.parameter(settings, "ceiling")
            below = self._room.below_ceiling(one, room, ceiling=ceiling)
            room = max(below, min(room, one.sizes.asked))
        if one.failed:
            room = min(room, max(one.failed - 1, one.sizes.asked))
        reported = self._progress.reported(one.uid)
        return best_size(
            one.sizes,
            speeds=one.speeds,
            largest=max(one.largest, one.sizes.now),
            room=max(room, one.sizes.now),
            pause=one.pause or USUAL_PAUSE,
            left=reported.progress.left if reported else None,
        )


def _change(one: ScaledJob, workers: int) -> Change:
    more = words.workers(workers - one.sizes.now)
    if workers <= one.sizes.asked:
        why = f"it gets back {more} of the {one.sizes.asked} that it asked for: there is room"
        return Change(Cause.REGROW, workers, why)
    why = f"it gets {more} beyond what it had: there is room that no job waits for"
    return Change(Cause.GROWTH, workers, why)
