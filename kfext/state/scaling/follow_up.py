"""What becomes of a change once it is written: whether it takes effect, and whether it pays."""

from itertools import count

from kfext.core.lifecycle.steps import RestartWorkers, Step
from kfext.core.scale.change import Cause, Change, Phase, starts_anew
from kfext.core.scale.worth import LEAST_GAIN
from kfext.model.backoff import exponential_backoff
from kfext.model.kinds.job_kind import WORKER
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import REASON_RESCALING
from kfext.state.progress import JobsProgress
from kfext.state.scaling.cost import note_pause
from kfext.state.scaling.scaled_job import ScaledJob, all_running, leaving

PAUSE_SECONDS = 300.0
"""How long a job is left alone of which a change could not be carried out."""
_MOST_DOUBLINGS = 4
"""Of that pause, each time that the same fails again."""
SETTLE_SECONDS = 300.0
"""How long pods that come or go are waited for: the node of one that never ends may be lost."""
STEP_SECONDS = 120.0
"""How long the first step at a new size may take; longer for a job that prints seldom."""
_SELDOM = 4
"""Times the longest silence of a job after which it counts as hanging."""
_SILENT_SECONDS = 60.0
"""How long a step is waited for of a job that never printed one."""
_TRIAL_SECONDS = 180.0
_STRIKES = 2
"""Attempts to bind new pods after which they are taken back; the third would give up the job."""


class FollowUp:
    """Follows the changes that are written."""

    def __init__(self, progress: JobsProgress) -> None:
        self._progress = progress

    def settle(self, one: ScaledJob, pods: tuple[Pod, ...], now: Moment) -> Change | None:
        """Take in which pods have come and gone; return the change that takes growth back."""
        late = now.monotonic - one.since >= SETTLE_SECONDS
        if all_running(one.tracked, pods):
            if self._grew(one):
                one.unplaced = 0
            one.whole_at = now.monotonic
            if starts_anew(one.tracked.job):
                one.started_at = now.monotonic
            one.enter(Phase.STEPPING, at=now.monotonic)
        elif self._grew(one) and (late or one.tracked.state.strikes >= _STRIKES):
            one.grows_at = now.monotonic + lengthened(one.unplaced)
            one.unplaced += 1
            # Those that run may stay: to take back the others takes no checkpoint.
            kept = max(one.before, min(_running(pods), one.sizes.now - 1))
            return Change(Cause.TAKE_BACK, kept, "the new workers have found no place")
        elif late:
            one.end(at=now.monotonic)
        return None

    def step(self, one: ScaledJob, pods: tuple[Pod, ...], now: Moment) -> Step | str | None:
        """Take in whether the job trains again; return a remedy if it hangs.

        That is to replace its workers, once; then the reason why it is left alone.
        """
        reported = self._progress.reported(one.uid)
        stepped = reported.progress.at if reported and reported.progress.step is not None else None
        ago = now.monotonic - one.since
        if stepped is None:
            if ago >= _SILENT_SECONDS:
                one.end(at=now.monotonic)
        elif stepped > now.wall - ago:
            note_pause(one, self._progress, now)
            trial = one.change is not None and one.change.cause is Cause.GROWTH
            if trial and one.before in one.speeds:
                one.speeds.pop(one.sizes.now, None)
                one.enter(Phase.TRIAL, at=now.monotonic)
            else:
                one.end(at=now.monotonic)
        elif ago >= self._patience(one):
            return self._remedy(one, pods, ago, now)
        return None

    def _remedy(
        self, one: ScaledJob, pods: tuple[Pod, ...], ago: float, now: Moment
    ) -> Step | str | None:
        """Return what to do with a job that has made no step for too long."""
        if not (self._was_read(one) and self._progress.pause(one.uid)):
            # It may be what it does between two lines, and its workers would lose their work.
            if ago >= self._patience(one) + SETTLE_SECONDS:
                one.end(at=now.monotonic)  # nothing more is seen of it
            return None
        if one.restarted or starts_anew(one.tracked.job) or not all_running(one.tracked, pods):
            one.end(at=now.monotonic)
            hangs = one.restarted and all_running(one.tracked, pods)
            return "it did not train on after its number of workers had changed" if hangs else None
        one.restarted = True
        one.enter(Phase.SETTLING, at=now.monotonic)
        message = f"no step for {ago:.0f} s since its number of workers has changed"
        return RestartWorkers(
            leaving(pods, 0), one.tracked.state, Verdict(REASON_RESCALING, message)
        )

    def judge(self, one: ScaledJob, now: Moment) -> Change | None:
        """Take in the speed of a job on trial; return the change that takes its growth back."""
        before, after = one.speeds.get(one.before), one.speeds.get(one.sizes.now)
        if before is not None and after is not None:
            if after < (1.0 + LEAST_GAIN) * before:
                one.failed = one.sizes.now
                why = f"it is not faster: {after:.3g} steps a second with {one.sizes.now} workers"
                why = f"{why}, {before:.3g} with {one.before}"
                asked = one.sizes.asked
                back = asked if one.before < asked < one.sizes.now else one.before
                return Change(Cause.TAKE_BACK, back, why)
            one.end(at=now.monotonic)
        elif now.monotonic - one.since >= _TRIAL_SECONDS:
            one.end(at=now.monotonic)
        return None

    def _grew(self, one: ScaledJob) -> bool:
        change = one.change
        in_place = not starts_anew(one.tracked.job)
        return in_place and change is not None and change.workers > one.before

    def _patience(self, one: ScaledJob) -> float:
        """Return how many seconds without a step are too many for a job."""
        return max(STEP_SECONDS, _SELDOM * self._progress.pause(one.uid))

    def _was_read(self, one: ScaledJob) -> bool:
        """Return whether the log of a job was read since its pods have come and gone."""
        read = self._progress.last_read(one.uid)
        return read is not None and read > one.since


def lengthened(failures: int) -> float:
    """Return the pause after a failure, in seconds; `failures`: those in a row before it."""
    longest = PAUSE_SECONDS * 2**_MOST_DOUBLINGS
    return exponential_backoff(failures + 1, first=PAUSE_SECONDS, longest=longest)


def _running(pods: tuple[Pod, ...]) -> int:
    """Return how many of the first workers of a job run, without a gap."""
    running = {
        pod.replica.index
        for pod in pods
        if pod.replica and pod.replica.type == WORKER.lower()
        if pod.phase == "Running" and not pod.deleting
    }
    return next(index for index in count() if index not in running)
