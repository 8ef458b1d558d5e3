"""What is done next: sizes are given back, a job that starves gets room, and then jobs grow."""

import math
from collections.abc import Callable

from kfext import names
from kfext.core import words
from kfext.core.scale import parameters
from kfext.core.scale.change import Cause, Change
from kfext.core.scale.readiness import Readiness
from kfext.core.scale.stand_down import why_left_alone, why_one_size
from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.model.policy import Mode
from kfext.names import PLACED
from kfext.state.cluster import Cluster
from kfext.state.queue import Queue
from kfext.state.scaling.foresight import Foresight
from kfext.state.scaling.growth import MOST_LOOKED, GrowthLimit
from kfext.state.scaling.in_turn import InTurn
from kfext.state.scaling.rescalings import Rescalings
from kfext.state.scaling.scaled_job import ScaledJob, all_running, is_ours
from kfext.state.scaling.scaled_jobs import ScaledJobs
from kfext.state.tracked_job import TrackedJob

PROMISE_SECONDS = 300.0
"""How long what is given up is kept for the job that waits: a pod may never end."""


class Decisions:
    """Decides which changes begin. `occupied`: whether the CPU of a job is being changed.

    `foresight`: what would begin if the policy did not only observe.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        jobs: ScaledJobs,
        rescalings: Rescalings,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self.occupied: Callable[[str], bool] = lambda uid: False
        self.foresight = Foresight(queue, rescalings, settings_of)
        self._cluster = cluster
        self._queue = queue
        self._jobs = jobs
        self._rescalings = rescalings
        self._guard, self._growth = rescalings.guard, rescalings.growth
        self._failures = rescalings.failures
        self._settings_of = settings_of
        self._promised: dict[str, float] = {}
        self._backs = InTurn(MOST_LOOKED)
        self._quiet_since = math.inf

    def note_act(self, at: float) -> None:
        """Take in that a job was started or resized: until then its room was not idle."""
        self._quiet_since = at

    def decide(self, now: Moment) -> None:
        """Begin what is to be done next."""
        at = now.monotonic
        self._quiet_since = min(self._quiet_since, at)
        self._end_promises(at)
        if not self._jobs.by_uid:
            return
        limit = self._growth.limit(now=now.wall)
        free = [one for one in self._jobs.by_uid.values() if self._is_free(one, now)]
        for one in self._backs.some([one for one in free if self._is_to_give_back(one)]):
            with self._failures.about(one.tracked):
                if change := self._give_back(one, limit, now):
                    self._rescalings.begin([(one, change)], at=at)
        acting = [one for one in free if one.change is None and self._may_act(one, at=at)]
        for one in acting:
            if change := _unprofitable_growth(one):
                self._rescalings.begin([(one, change)], at=at)
        acting = [one for one in acting if one.change is None]
        seen = [one for one in free if one.choice.mode is Mode.OBSERVE and not one.unfit]
        waiting = self._starving(now)
        if waiting is not None:
            able = [*acting, *self._rescalings.about_to_grow()]
            with self._failures.about(waiting):
                self._rescue(waiting, able, now)
        self._grow(acting, limit, now)
        self.foresight.look(seen, limit, None if self._rescalings.rescuing else waiting, now)

    def _starving(self, now: Moment) -> TrackedJob | None:
        """Return the job for which workers are to be given up, unless that is under way for one."""
        if self._rescalings.rescuing or self._queue.promises.kept():
            return None
        return self._guard.due(now=now.wall)

    def _rescue(self, waiting: TrackedJob, able: list[ScaledJob], now: Moment) -> None:
        """Have jobs give up workers for one that waits: first what they are about to gain."""
        rescue = self._guard.rescue(waiting, able, now=now.wall)
        if rescue is None:
            return
        self._rescalings.drop_growth(at=now.monotonic)
        waited = parameters.parameter(self._settings_of(waiting), "wait")
        changes = []
        for uid, workers in rescue.sizes.items():
            one = self._jobs.by_uid[uid]
            gives = words.workers(one.sizes.now - workers)
            why = f"{gives} make room for a job that has waited for over {waited:g} s"
            changes.append((one, Change(Cause.GUARD, workers, why)))
        self._rescalings.begin(changes, at=now.monotonic, rescue=rescue)

    def _grow(self, acting: list[ScaledJob], limit: GrowthLimit, now: Moment) -> None:
        idle = now.monotonic - self._quiet_since
        ripe = [
            one
            for one in acting
            if one.change is None
            and (idle >= self._parameter(one, "idle") or self._loses_nothing(one, now))
            and now.monotonic >= one.grows_at
        ]
        for one in self._growth.growable(ripe):
            with self._failures.about(one.tracked):
                if change := self._growth.change(one, limit, now=now.wall):
                    self._rescalings.begin([(one, change)], at=now.monotonic)

    def _give_back(self, one: ScaledJob, limit: GrowthLimit, now: Moment) -> Change | None:
        """Return the change that gives a job its user's size again, as it has opted out."""
        settings, sizes = self._settings_of(one.tracked), one.sizes
        if sizes.asked > sizes.now and (
            limit is GrowthLimit.NONE
            or self._rescalings.room.most(one, settings, up_to=sizes.asked, now=now.wall)
            <= sizes.now
        ):
            return None
        off = f"{names.ELASTIC} is off" if settings.elastic is None else ""
        why = off or one.unfit or "the policy does not act"
        return Change(Cause.GIVE_BACK, sizes.asked, f"it gets back its own size: {why}")

    def _is_to_give_back(self, one: ScaledJob) -> bool:
        """Return whether a job gets its own size again, as kfext may not choose it any more."""
        job = one.tracked.job
        if not is_ours(one.tracked) or job.kueue_managed or why_one_size(job):
            return False
        if one.unfit:  # whoever scales it by now may want the workers that kfext gave it
            return one.sizes.now < one.sizes.asked
        return one.choice.mode is not Mode.ACT

    def _is_free(self, one: ScaledJob, now: Moment) -> bool:
        """Return whether a job runs as it should, so that its size may change."""
        tracked = one.tracked
        one.unfit = why_left_alone(tracked.job, self._settings_of(tracked))
        return (
            one.change is None
            and one.resting is None
            and tracked.phase == PLACED
            and not (tracked.busy or tracked.job.suspend or self.occupied(one.uid))
            and now.monotonic >= one.not_before
            and all_running(tracked, self._cluster.pods(one.uid))
            and self._rescalings.saves.state_of(one, now=now.wall) is not Readiness.NEVER
        )

    def _may_act(self, one: ScaledJob, *, at: float) -> bool:
        if one.choice.mode is not Mode.ACT or one.tracked.state.scale.rests or one.unfit:
            return False
        return at - max(one.settled_at, one.started_at) >= self._parameter(one, "rest")

    def _loses_nothing(self, one: ScaledJob, now: Moment) -> bool:
        return self._rescalings.saves.loses_nothing(one, now=now.wall)

    def _parameter(self, one: ScaledJob, name: str) -> float:
        return parameters.parameter(self._settings_of(one.tracked), name)

    def _end_promises(self, at: float) -> None:
        """Keep nothing for jobs that wait no more, in vain, or for ever."""
        promises = self._queue.promises
        self._promised = {uid: self._promised.get(uid, at) for uid in promises.kept()}
        for uid, since in self._promised.items():
            tracked = self._cluster.jobs.get(uid)
            if tracked is None or at - since >= PROMISE_SECONDS or self._is_in_vain(tracked):
                promises.drop(uid)

    def _is_in_vain(self, tracked: TrackedJob) -> bool:
        """Return whether a promise does a job no good: all was given up, and it still waits.

        A size was refused then, or the job needs more by now; or it does not wait any more. Its own
        size may be what changes: it is stopped for that, and may not even be suspended yet.
        """
        one = self._jobs.by_uid.get(tracked.job.uid)
        if one is not None and one.change is not None:
            return False
        return tracked.settled and not (tracked.job.suspend and self._jobs.any_changes)


def _unprofitable_growth(one: ScaledJob) -> Change | None:
    """Return the change that takes back growth which did not pay, if it was not taken back then.

    The job may have saved no checkpoint in time. What its user asks for is never taken.
    """
    if not one.failed or one.sizes.now < one.failed or one.sizes.now <= one.sizes.asked:
        return None
    workers = max(one.failed - 1, one.sizes.asked)
    why = f"it was not faster with {one.failed} workers"
    return Change(Cause.TAKE_BACK, workers, why)
