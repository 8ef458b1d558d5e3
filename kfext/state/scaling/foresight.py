"""What would be done with the jobs that the policy may only observe."""

from collections.abc import Callable, Sequence

from kfext.core import words
from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.state.queue import Queue
from kfext.state.scaling.growth import MOST_LOOKED, GrowthLimit
from kfext.state.scaling.guard import Guard
from kfext.state.scaling.in_turn import InTurn
from kfext.state.scaling.rescalings import Rescalings
from kfext.state.scaling.scaled_job import ScaledJob
from kfext.state.tracked_job import TrackedJob


class Foresight:
    """Asks the guard and growth as for jobs that are scaled, and begins nothing."""

    def __init__(
        self, queue: Queue, rescalings: Rescalings, settings_of: Callable[[TrackedJob], Settings]
    ) -> None:
        self._rescalings = rescalings
        self._guard = Guard(queue, rescalings.room, settings_of)
        self._turns = InTurn(MOST_LOOKED)
        self._gets: dict[str, str] = {}
        self._gives: dict[str, str] = {}

    def would(self, uid: str) -> str:
        """Return what would be done with a job, empty if nothing."""
        return self._gives.get(uid) or self._gets.get(uid, "")

    def look(
        self, seen: Sequence[ScaledJob], limit: GrowthLimit, waiting: TrackedJob | None, now: Moment
    ) -> None:
        """Find out how some of these jobs would grow, and what all would give for one that waits.

        `waiting`: the job that is due for room, None if there is none.
        """
        self._gets = {one.uid: self._gets.get(one.uid, "") for one in seen}
        self._gives = {}
        growth, failures = self._rescalings.growth, self._rescalings.failures
        for one in self._turns.some(seen):
            self._gets[one.uid] = ""
            with failures.about(one.tracked):
                if change := growth.change(one, limit, now=now.wall):
                    self._gets[one.uid] = f"it would get {words.workers(change.workers)}"
        if waiting is not None and seen:
            with failures.about(waiting):
                rescue = self._guard.rescue(waiting, seen, now=now.wall)
                for uid, workers in (rescue.sizes if rescue else {}).items():
                    less = words.workers(workers)
                    self._gives[uid] = f"it would go down to {less}, for a job that waits"
