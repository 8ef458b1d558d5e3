"""Which jobs grow: they get back what they asked for, then more if it pays.

Source: DRAGON's third phase, the least fulfilled first, with the marginal gain of Optimus and
Pollux as its end.
"""

import math
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import assert_never

from kfext.core import words
from kfext.core.lifecycle.capacity import WAITS_FOR_CAPACITY
from kfext.core.scale import parameters
from kfext.core.scale.change import Cause, Change
from kfext.core.scale.worth import SEEN_FACTOR, best_size
from kfext.core.settings.table import Settings
from kfext.state.progress import JobsProgress
from kfext.state.queue import Queue
from kfext.state.scaling.cost import cost
from kfext.state.scaling.in_turn import InTurn
from kfext.state.scaling.room import ScaleRoom
from kfext.state.scaling.scaled_job import ScaledJob
from kfext.state.tracked_job import TrackedJob


class GrowthLimit(Enum):
    """How far jobs may grow: not at all, to what they asked for, or as far as it pays."""

    NONE = "none"
    ASKED = "asked"
    PAYING = "paying"


MOST_SHUT_SECONDS = 300.0
"""How long at a time jobs that came a moment ago keep others from getting back what they asked for.
"""
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
        self._turns = InTurn(MOST_LOOKED)
        self._shut_since = math.inf

    def limit(self, *, now: float) -> GrowthLimit:
        """Return how far jobs may grow, as others wait.

        Not at all while a job may yet be served, but only for so long at a time: a user may submit
        one after the other, or edit one again and again.
        """
        found = self._limit(now)
        if found is not GrowthLimit.NONE:
            self._shut_since = math.inf
            return found
        self._shut_since = min(self._shut_since, now)
        return GrowthLimit.NONE if now - self._shut_since < MOST_SHUT_SECONDS else GrowthLimit.ASKED

    def _limit(self, now: float) -> GrowthLimit:
        """Return how far jobs may grow, as others wait now.

        One that came a moment ago may be served at once, or by the guard: its room is not touched.
        One that even the guard could not serve has no use for the room as it is. Jobs may get back
        what they asked for then, and give it again once that is of use; but no more than that, as
        long as nothing is reserved for it. What is reserved is on the ledger. Nor is it more in a
        cluster with an autoscaler, which would keep nodes, or add some, that no user asked for.
        """
        limit = GrowthLimit.ASKED if self._queue.autoscaler else GrowthLimit.PAYING
        for one in self._queue.queued():
            if one.verdict is None or one.verdict.reason not in WAITS_FOR_CAPACITY:
                continue
            settings = self._settings_of(one)
            served = parameters.parameter(settings, "wait") + parameters.parameter(settings, "idle")
            if one.waits(now) < served:
                return GrowthLimit.NONE
            if self._queue.reservable_in(one, now=now) > 0:
                limit = GrowthLimit.ASKED
        return limit

    def growable(self, candidates: Collection[ScaledJob]) -> Sequence[ScaledJob]:
        """Return the jobs that may grow, the least fulfilled first; of many, a few at a time."""
        able = [one for one in candidates if one.sizes.now < one.sizes.most]
        able.sort(key=lambda one: (one.sizes.fulfilment, one.tracked.job.created, one.uid))
        return self._turns.some(able)

    def change(self, one: ScaledJob, limit: GrowthLimit, *, now: float) -> Change | None:
        """Return how a job is to grow now, None if it is not to."""
        workers = self.size(one, limit, now=now)
        if workers > one.sizes.now:
            return _change(one, workers)
        short = one.sizes.now < one.sizes.asked
        one.hindered = self._room.quota_refuses(one, one.sizes.now + 1) if short else ""
        return None

    def size(self, one: ScaledJob, limit: GrowthLimit, *, now: float) -> int:
        """Return the size to which a job is to grow now, its present one if it is not to."""
        # Before it was seen to train, what its user asked for is no guess.
        largest = max(one.largest or one.sizes.asked, one.sizes.now)
        match limit:
            case GrowthLimit.NONE:
                return one.sizes.now
            case GrowthLimit.ASKED:
                up_to = one.sizes.asked
            case GrowthLimit.PAYING:
                up_to = SEEN_FACTOR * largest
            case _:
                assert_never(limit)
        if up_to <= one.sizes.now:
            return one.sizes.now
        settings = self._settings_of(one.tracked)
        room = self._room.most(one, settings, up_to=min(up_to, SEEN_FACTOR * largest), now=now)
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
            largest=largest,
            room=max(room, one.sizes.now),
            pause=cost(one, self._progress, now=now),
            left=reported.progress.left if reported else None,
        )


def _change(one: ScaledJob, workers: int) -> Change:
    more = words.workers(workers - one.sizes.now)
    if workers <= one.sizes.asked:
        why = f"it gets back {more} of the {one.sizes.asked} that it asked for: there is room"
        return Change(Cause.REGROW, workers, why)
    why = f"it gets {more} beyond what it had: there is room that no job waits for"
    return Change(Cause.GROWTH, workers, why)
