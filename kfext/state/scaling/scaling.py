"""The part of the companion that changes how many workers running jobs have.

Signals -> who is starved, who may grow -> a checkpoint -> one write for each job -> what came of
it. It is pulled, like the planner, and places workers by the search and the ledger of placement.
"""

import math
from collections.abc import Callable

from kfext import names
from kfext.core.companion.shown import Shown
from kfext.core.lifecycle.steps import Step
from kfext.core.scale.change import Phase
from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.model.policy import Mode
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.failures import Failures
from kfext.state.progress import JobsProgress
from kfext.state.queue import Queue
from kfext.state.scaling.decisions import Decisions
from kfext.state.scaling.follow_up import PAUSE_SECONDS
from kfext.state.scaling.following import Following, Found
from kfext.state.scaling.rescalings import Rescalings
from kfext.state.scaling.scaled_job import ScaledJob, is_ours
from kfext.state.scaling.scaled_jobs import ScaledJobs
from kfext.state.scaling.words import shown_of
from kfext.state.tracked_job import TrackedJob

LOOK_SECONDS = 5.0
"""Seconds between two looks at who is starved and who may grow."""
FOLLOW_SECONDS = 1.0
"""Seconds between two looks at a change that is under way."""
_RETRY_SECONDS = 30.0


class Scaling:
    """Decides on the number of workers of jobs that opted in.

    `failures`: takes the errors of ours that are about a job.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self.failures = Failures()
        self._queue = queue
        self._jobs = ScaledJobs(cluster, progress, settings_of, self.failures)
        self._rescalings = Rescalings(cluster, queue, progress, settings_of, self.failures)
        self._jobs.adopted = self._rescalings.keep_room
        self._decisions = Decisions(cluster, queue, self._jobs, self._rescalings, settings_of)
        self._following = Following(cluster, progress, self._jobs, self._rescalings)
        self._looked = self._followed_at = -math.inf

    def leave_out(self, occupied: Callable[[str], bool]) -> None:
        """Leave out the jobs, by uid, of which another part of the companion changes something."""
        self._decisions.occupied = occupied

    def changing(self, uid: str) -> bool:
        """Return whether the size of a job is being changed."""
        one = self._jobs.by_uid.get(uid)
        return one is not None and one.change is not None

    def next_look(self) -> float:
        """Return when to look again at the latest, in monotonic seconds; infinity if never."""
        if not self._jobs.by_uid:
            return math.inf
        look = self._looked + LOOK_SECONDS
        return min(look, self._followed_at + FOLLOW_SECONDS) if self._jobs.any_changes else look

    def note_start(self, at: float) -> None:
        """Take in that a job is started."""
        self._decisions.note_act(at)

    def steps(self, now: Moment) -> list[tuple[TrackedJob, Step]]:
        """Return what is to be written now; each job is busy until `finish`."""
        at = now.monotonic
        looks, self._followed_at = at - self._looked >= LOOK_SECONDS, at
        if looks:
            self._looked = at
            self._jobs.enrol(now)
        found: list[Found] = []
        for one in self._jobs.by_uid.values():
            if looks or one.change is not None:
                found += self._followed(one, now)
        found += self._rescalings.steps(now)
        if looks:
            self._decisions.decide(now)
            found += self._rescalings.steps(now)
            for one in self._jobs.by_uid.values():
                with self.failures.about(one.tracked):
                    self._show(one, now)
        if self._jobs.any_moves(at):
            self._decisions.note_act(at)
        return [(one.tracked, step) for one, step in found]

    def finish(self, tracked: TrackedJob, *, complete: bool, final: str, now: float) -> None:
        """Take in what came of a step; `final`: why the API server would refuse it again."""
        one = self._jobs.by_uid.get(tracked.job.uid)
        if one is None:
            return
        if one.change is None:
            one.resting = None if complete else one.resting
            return
        if one.phase is not Phase.WRITING:
            if not complete and one.phase is Phase.SETTLING:
                one.restarted = bool(final)  # not all of its workers were replaced
            elif not complete:
                one.requested, one.asks_at = 0, now + LOOK_SECONDS  # it is asked again
            return
        if complete:
            one.expected, one.refused = one.change.workers, None
            one.settled_at = now
            one.changed_at = tracked.state.scale.changed_at
            one.enter(Phase.SETTLING, at=now)
            return
        self._queue.promises.drop(one.uid)
        if final:
            one.refused = Verdict(names.REASON_SCALE_REFUSED, final)
        one.end(at=now, pause=PAUSE_SECONDS if final else _RETRY_SECONDS)

    def news(self) -> list[tuple[TrackedJob, Shown | None]]:
        """Return the jobs of which something else is to be shown than before; None: nothing."""
        return self._jobs.shown.news()

    def _followed(self, one: ScaledJob, now: Moment) -> list[Found]:
        """Return what is to be written of a job; an error of ours there touches no other job."""
        found: list[Found] | None = None
        with self.failures.about(one.tracked):
            found = list(self._following.steps(one, now))
        if found is None:
            one.end(at=now.monotonic, pause=PAUSE_SECONDS)
        return found or []

    def _show(self, one: ScaledJob, now: Moment) -> None:
        unmanaged = one.tracked.phase is None
        if unmanaged or (one.choice.mode is Mode.OFF and not is_ours(one.tracked)):
            self._jobs.shown.show(one, None)
            return
        ready = self._rescalings.saves.state_of(one, now=now.wall)
        would = self._decisions.foresight.would(one.uid)
        autoscaler = self._queue.autoscaler
        shown = shown_of(one, ready, would=would, now=now.monotonic, autoscaler=autoscaler)
        self._jobs.shown.show(one, shown)
