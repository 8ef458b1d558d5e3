"""The part of the companion that changes how many workers running jobs have.

Signals -> who is starved, who may grow -> a checkpoint -> one write for each job -> what came of
it. It is pulled, like the planner, and places workers by the search and the ledger of placement.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from kfext import names
from kfext.core.companion.shown import Shown
from kfext.core.elastic import workers_of
from kfext.core.lifecycle.steps import SaveState, Step
from kfext.core.scale.change import Cause, Change, Phase, starts_anew
from kfext.core.scale.stand_down import why_not_scaled
from kfext.core.settings.resolve import Settings
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import Mode
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.progress import JobsProgress
from kfext.state.queue import Queue
from kfext.state.scaling.decisions import Decisions
from kfext.state.scaling.follow_up import PAUSE_SECONDS, FollowUp
from kfext.state.scaling.rescalings import Rescalings
from kfext.state.scaling.scaled_job import ScaledJob, is_ours, is_scaled, is_whole
from kfext.state.scaling.scaled_jobs import ScaledJobs
from kfext.state.scaling.words import shown_of
from kfext.state.tracked_job import TrackedJob

LOOK_SECONDS = 5.0
"""Seconds between two looks at who is starved and who may grow."""
FOLLOW_SECONDS = 1.0
"""Seconds between two looks at a change that is under way."""
_RETRY_SECONDS = 30.0

Found = tuple[ScaledJob, Step]


class Scaling:
    """Decides on the number of workers of jobs that opted in.

    `failures`: errors of ours in the last `steps`, each with a job that it was about.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self.failures: list[tuple[TrackedJob, Exception]] = []
        self._cluster = cluster
        self._queue = queue
        self._progress = progress
        self._jobs = ScaledJobs(cluster, progress, settings_of)
        self._rescalings = Rescalings(cluster, queue, progress, settings_of)
        self._decisions = Decisions(cluster, queue, self._jobs, self._rescalings, settings_of)
        self._follow_up = FollowUp(progress)
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
        at, self.failures = now.monotonic, []
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
                self._show(one, now)
        self.failures += self._rescalings.failures
        self._rescalings.failures = []
        if self._jobs.any_changes:
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
            if not complete:
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
        return self._jobs.news()

    def _followed(self, one: ScaledJob, now: Moment) -> list[Found]:
        """Return what is to be written of a job; an error of ours there touches no other job."""
        try:
            return list(self._follow(one, now))
        except Exception as error:
            self.failures.append((one.tracked, error))
            one.end(at=now.monotonic, pause=PAUSE_SECONDS)
            return []

    def _follow(self, one: ScaledJob, now: Moment) -> Iterator[Found]:
        """Bring what is known of a job up to date, and its change a step further."""
        tracked, at = one.tracked, now.monotonic
        if tracked.busy:
            return
        self._take_size(one, now)
        pods = self._cluster.pods(one.uid)
        if one.change is None or one.phase is Phase.TRIAL:
            reported = self._progress.reported(one.uid)
            if reported is not None and is_whole(tracked, pods):
                one.measure(reported.progress, self._progress.restarts(one.uid))
        if one.phase is Phase.WRITING:
            one.end(at=at)  # its step was never written, after an error of ours
            tracked.finish()
            self._cluster.sync_claims(tracked)
        elif one.phase is Phase.SAVING:
            if self._is_void(one, pods):
                one.end(at=at)
        elif one.phase is Phase.SETTLING:
            self._take_back(one, self._follow_up.settle(one, pods, now), at=at)
        elif one.phase is Phase.STEPPING:
            found = self._follow_up.step(one, pods, now)
            if isinstance(found, str):
                one.resting = found
            elif found is not None:
                yield one, found
        elif one.phase is Phase.TRIAL:
            self._take_back(one, self._follow_up.judge(one, now), at=at)
        if one.change is None:
            yield from self._note_rest(one)

    def _take_size(self, one: ScaledJob, now: Moment) -> None:
        """Take in how many workers a job has, and whose doing that is."""
        present, known = workers_of(one.tracked.job), one.tracked.state.scale
        if present != one.expected:
            if known.changed_at != one.changed_at:
                self._jobs.adopt(one, now)
            elif not (one.tracked.job.suspend or is_ours(one.tracked)):  # else it starts with fewer
                self._edited(one, present, now)
            one.expected = present
        one.changed_at = known.changed_at
        one.sizes = self._jobs.sizes_of(one.tracked)
        if one.change is not None and one.tracked.job.suspend and not one.tracked.job.held:
            one.end(at=now.monotonic)  # a person has stopped it, for as long as that person likes

    def _is_void(self, one: ScaledJob, pods: tuple[Pod, ...]) -> bool:
        """Return whether a change that is not written yet is not wanted any more."""
        if why_not_scaled(one.tracked.job):
            return True  # by now somebody else scales it, or its form has changed
        cause = one.change.cause if one.change else None
        # What is taken back in place may be workers that found no place.
        in_place = cause is Cause.TAKE_BACK and not starts_anew(one.tracked.job)
        if not (in_place or is_whole(one.tracked, pods)):
            return True
        restores = cause in {Cause.TAKE_BACK, Cause.GIVE_BACK}
        return one.tracked.job.suspend or (one.choice.mode is not Mode.ACT and not restores)

    def _take_back(self, one: ScaledJob, change: Change | None, *, at: float) -> None:
        if change is not None:
            self._rescalings.begin([(one, change)], at=at)

    def _edited(self, one: ScaledJob, workers: int, now: Moment) -> None:
        """Take in that somebody else set the number of workers: that is the new wish.

        The policy leaves a job alone that two hands would resize; not one that it never touched.
        """
        ours = one.change is not None or one.tracked.state.asked > 0
        one.end(at=now.monotonic)
        if ours:
            message = f"somebody set its number of workers to {workers}: that is the new wish"
            one.resting = f"{message}; set {names.ELASTIC} off and on to scale again"

    def _note_rest(self, one: ScaledJob) -> Iterator[Found]:
        """Write on a job that it is left alone from now on, at the size that it has, or no more."""
        state = one.tracked.state
        if state.scale.rests and self._jobs.has_opted_out(one.tracked):
            one.resting = ""
        if one.resting is not None:
            kept = replace(state, scale=replace(one.remembered(), rests=one.resting))
            kept = kept if is_ours(one.tracked) else replace(kept, asked=0, admitted=0)
            yield one, SaveState(kept)

    def _show(self, one: ScaledJob, now: Moment) -> None:
        if one.choice.mode is Mode.OFF and not is_scaled(one.tracked):
            self._jobs.tell(one, None)
            return
        try:
            ready = self._rescalings.saves.state_of(one, now=now.wall)
            would = self._decisions.foresight.would(one.uid)
            self._jobs.tell(one, shown_of(one, ready, would=would, now=now.monotonic))
        except Exception as error:
            self.failures.append((one.tracked, error))
