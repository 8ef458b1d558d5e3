"""Follows jobs whose size may change: what they have, whose doing that is, and what is next."""

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from kfext import names
from kfext.core.companion.scale import Cause, Change, Phase, interrupts, starts_anew
from kfext.core.companion.stand_down import why_not_scaled, why_one_size
from kfext.core.elastic import workers_of
from kfext.core.lifecycle.steps import SaveState, Step
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import Mode
from kfext.state.cluster import Cluster
from kfext.state.progress import JobsProgress
from kfext.state.scaling.cost import WATCHED_SECONDS, note_pause, note_start
from kfext.state.scaling.follow_up import FollowUp
from kfext.state.scaling.rescalings import Rescalings
from kfext.state.scaling.scaled_job import ScaledJob, all_running, is_ours
from kfext.state.scaling.scaled_jobs import ScaledJobs

Found = tuple[ScaledJob, Step]


class Following:
    """Brings what is known of jobs up to date, and their changes a step further."""

    def __init__(
        self, cluster: Cluster, progress: JobsProgress, jobs: ScaledJobs, rescalings: Rescalings
    ) -> None:
        self._cluster = cluster
        self._progress = progress
        self._jobs = jobs
        self._rescalings = rescalings
        self._follow_up = FollowUp(progress)

    def steps(self, one: ScaledJob, now: Moment) -> Iterator[Found]:
        """Take in how a job is; yield what is to be written of it."""
        if one.tracked.busy:
            return
        self._take_size(one, now)
        pods = self._cluster.pods(one.uid)
        if one.change is None or one.phase is Phase.TRIAL:
            self._measure(one, pods, now)
        yield from self._advance(one, pods, now)
        if one.change is None:
            yield from self._note_rest(one)

    def _advance(self, one: ScaledJob, pods: tuple[Pod, ...], now: Moment) -> Iterator[Found]:
        """Bring the change of a job a step further."""
        tracked, at = one.tracked, now.monotonic
        match one.phase:
            case None:
                pass
            case Phase.WRITING:
                one.end(at=at)  # its step was never written, after an error of ours
                tracked.finish()
                self._cluster.sync_claims(tracked)
            case Phase.SAVING:
                if self._is_void(one, pods):
                    one.end(at=at)
            case Phase.SETTLING:
                self._take_back(one, self._follow_up.settle(one, pods, now), at=at)
            case Phase.STEPPING:
                found = self._follow_up.step(one, pods, now)
                if isinstance(found, str):
                    one.resting = found
                elif found is not None:
                    yield one, found
            case Phase.TRIAL:
                self._take_back(one, self._follow_up.judge(one, now), at=at)
            case _:
                assert_never(one.phase)

    def _measure(self, one: ScaledJob, pods: tuple[Pod, ...], now: Moment) -> None:
        """Take in how fast a job is, and for how long its start or its last change stopped it."""
        reported = self._progress.reported(one.uid)
        if reported is None or not all_running(one.tracked, pods):
            return
        one.measure(reported.progress, self._progress.restarts(one.uid))
        note_start(one, self._progress, pods)
        lately = now.monotonic - one.whole_at <= WATCHED_SECONDS
        if lately and interrupts(one.tracked.job):
            note_pause(one, self._progress, now)

    def _take_size(self, one: ScaledJob, now: Moment) -> None:
        """Take in how many workers a job has, and whose doing that is."""
        job, state = one.tracked.job, one.tracked.state
        present = workers_of(job)
        if present != one.expected:
            if state.scale.changed_at != one.changed_at:
                self._jobs.adopt(one, now)
            elif present != state.admitted and (state.asked or not job.suspend):
                self._edited(one, present, now)
            one.expected = present
        one.changed_at = state.scale.changed_at
        one.sizes = self._jobs.sizes_of(one.tracked)
        if one.change is not None and one.tracked.job.suspend and not one.tracked.job.held:
            one.end(at=now.monotonic)  # a person has stopped it, for as long as that person likes

    def _is_void(self, one: ScaledJob, pods: tuple[Pod, ...]) -> bool:
        """Return whether a change that is not written yet is not wanted any more."""
        cause, job = one.change.cause if one.change else None, one.tracked.job
        # It gives back even what somebody else scales by now; or the form of the job has changed.
        fixed = job.kueue_managed or why_one_size(job)
        if fixed if cause is Cause.GIVE_BACK else why_not_scaled(job):
            return True
        # What is taken back in place may be workers that found no place.
        in_place = cause is Cause.TAKE_BACK and not starts_anew(one.tracked.job)
        if not (in_place or all_running(one.tracked, pods)):
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
