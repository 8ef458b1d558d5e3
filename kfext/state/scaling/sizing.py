"""The write that gives a job another size, judged anew at that moment.

A checkpoint may have taken two minutes: others may have grown, and the room may be gone.
"""

from collections.abc import Callable
from dataclasses import replace

from kfext import names
from kfext.core import words
from kfext.core.elastic import with_workers, workers_of
from kfext.core.ledger.claims import pod_key
from kfext.core.lifecycle.patience import suspended
from kfext.core.lifecycle.situation import next_plan
from kfext.core.lifecycle.steps import Rescale, Step, Suspend
from kfext.core.placement.gang import members_of
from kfext.core.placement.slots import Places
from kfext.core.scale.change import Cause, Change, starts_anew
from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.model.plan import NO_SLOTS, Assignment
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.queue import Queue
from kfext.state.scaling.growth import Growth, GrowthLimit
from kfext.state.scaling.guard import Guard, Rescue
from kfext.state.scaling.room import ScaleRoom
from kfext.state.scaling.scaled_job import ScaledJob
from kfext.state.tracked_job import TrackedJob


class Sizing:
    """Makes the steps that change sizes."""

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        *,
        guard: Guard,
        growth: Growth,
        room: ScaleRoom,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._guard = guard
        self._growth = growth
        self._room = room
        self._settings_of = settings_of

    def promise(self, rescue: Rescue, now: Moment) -> None:
        """Keep what is given up for the job that waits: it may be freed pod by pod."""
        waiting = rescue.waiting
        places = self._guard.places(waiting, rescue.workers, rescue.sizes, now=now.wall)
        if places is not None:
            members = members_of(with_workers(waiting.job, rescue.workers))
            self._queue.promises.keep(waiting.job.uid, members, places)

    def keep_room(self, one: ScaledJob, now: Moment) -> None:
        """Keep the room of a job that was stopped for its new size; its pods may still be there."""
        job, waits = one.tracked.job, one.tracked.job.suspend and one.tracked.job.held
        if not (waits and starts_anew(job)) or self._queue.promises.of(one.uid):
            return
        places = self._room.waiting_fits(
            one.tracked,
            self._settings_of(one.tracked),
            workers_of(job),
            now=now.wall,
            gone=[pod_key(pod.uid) for pod in self._cluster.pods(one.uid)],
        )
        if places is not None:
            self._queue.promises.keep(one.uid, members_of(job), places)

    def step(self, one: ScaledJob, now: Moment) -> Step | None:
        """Return the write that gives a job its new size, None if there is no room any more."""
        change = one.change
        if change is None:
            return None
        if change.is_shrink(one.sizes.now):
            places: Assignment | None = self._room.shrunk(one, change.workers)
        else:
            settings = self._settings_of(one.tracked)
            most = min(change.workers, self._most_now(one, change, settings, now))
            if most <= one.sizes.now:
                return None
            change = one.change = replace(change, workers=most)
            places = self._room.grown(one, settings, most, now=now.wall)
        return None if places is None else self._written(one, change, places, now)

    def _most_now(self, one: ScaledJob, change: Change, settings: Settings, now: Moment) -> int:
        """Return how many workers a job may have now; another one may have grown meanwhile."""
        limit = self._growth.limit(now=now.wall)
        if change.cause is not Cause.GIVE_BACK:
            return self._growth.size(one, limit, now=now.wall)
        if limit is GrowthLimit.NONE:
            return one.sizes.now
        return self._room.most(one, settings, up_to=change.workers, now=now.wall)

    def _written(self, one: ScaledJob, change: Change, places: Assignment, now: Moment) -> Step:
        tracked = one.tracked
        state = one.noted(change.workers, cause=change.cause, now=now.wall)
        plan = tracked.plan
        what = f"{words.workers(one.sizes.now)} become {change.workers}"
        why = f"{what}: {change.why}"
        if starts_anew(tracked.job):
            state = replace(state, reason=names.REASON_RESCALING, message=why)
            pods = self._cluster.pods(one.uid)
            state = suspended(state, tracked.job, pods, plan=plan, now=now.wall)
            members = members_of(with_workers(tracked.job, change.workers))
            self._queue.promises.keep(one.uid, members, Places(places, NO_SLOTS))
            return Suspend(state, workers=change.workers)
        port = plan.port if plan else 0
        following = next_plan(plan, tracked.state, places, job_uid=one.uid, port=port, why=why)
        shrinks = change.is_shrink(one.sizes.now)
        reason = names.REASON_SHRUNK if shrinks else names.REASON_GROWN
        # At once, so that neither another change of this turn nor a start counts on the same room.
        tracked.assumed, tracked.assumed_workers = following, change.workers
        self._cluster.sync_claims(tracked)
        return Rescale(following, change.workers, state, Verdict(reason, why))
