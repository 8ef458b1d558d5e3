"""Follows jobs whose size may change: what they have, who changed it, what a change has brought."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import assert_never

from kfext import names
from kfext.core.companion.operation import Phase, ScaleOperation
from kfext.core.companion.proposal import RESTORES, Cause, Proposal, Workers
from kfext.core.companion.scale import LEAST_GAIN, interrupts, starts_anew, workers_proposal
from kfext.core.companion.stand_down import why_not_scaled, why_one_size
from kfext.core.elastic import workers_of
from kfext.core.lifecycle.steps import RestartWorkers, SaveState, Step
from kfext.model.kinds.job_kind import WORKER
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import Mode
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.progress import JobsProgress
from kfext.state.rescaling import Found, Rescaling, lengthened
from kfext.state.running_job import RunningJob, all_running, is_edited, is_ours, leaving
from kfext.state.running_jobs import STEP_SECONDS, RunningJobs
from kfext.state.scale_search import grace_of

SETTLE_SECONDS = 300.0
"""How long pods that come or go are waited for: the node of a pod that never ends may be lost."""
WATCHED_SECONDS = 60.0
"""How long after a change the end of its pause is looked for: the agents of torchrun may let the
processes train on for seconds before they meet."""
_SELDOM = 4
"""Times the longest silence of a job after which it counts as hanging."""
_SILENT_SECONDS = 60.0
"""How long a step is waited for of a job that never printed a step."""
_TRIAL_SECONDS = 180.0
_STRIKES = 2
"""Attempts to bind new pods after which they are taken back; the third would give up the job."""
_UNSEEN_SECONDS = 30.0
"""How long after a change its answer, or what it did, may be seen for its pause to be measured."""


class Following:
    """Brings what is known of sizes up to date, and operations on them a phase further.

    `rescaling` begins what takes growth back.
    """

    def __init__(
        self,
        cluster: Cluster,
        progress: JobsProgress,
        jobs: RunningJobs,
        rescaling: Rescaling,
    ) -> None:
        self._cluster = cluster
        self._progress = progress
        self._jobs = jobs
        self._rescaling = rescaling

    def steps(self, job: RunningJob, now: Moment) -> Iterator[Found]:
        """Record how a job is; yield what is to be written of it."""
        if job.tracked.busy:
            return
        self._record_size(job, now)
        pods = self._cluster.pods(job.uid)
        if job.size.phase in {None, Phase.TRIAL}:
            self._measure(job, pods, now)
        if job.size.operation is not None:
            yield from self._advance(job, job.size.operation, pods, now)
        if job.size.operation is None:
            yield from self._rest(job)

    def _advance(
        self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...], now: Moment
    ) -> Iterator[Found]:
        """Bring an operation a phase further."""
        tracked, at = job.tracked, now.monotonic
        back: Proposal | None = None
        match operation.phase:
            case Phase.SAVING:
                if self._is_void(job, operation, pods):
                    job.size.end(at=at)
            case Phase.WRITING:
                job.size.end(at=at)  # its step was never written, after an error of kfext's
                tracked.finish()
                self._cluster.sync_claims(tracked)
            case Phase.SETTLING:
                back = self.settle(job, operation, pods, now)
            case Phase.MEASURING:
                found = self.step(job, operation, pods, now)
                if isinstance(found, str):
                    job.size.resting = found
                elif found is not None:
                    yield job, found
            case Phase.TRIAL:
                back = self.judge(job, operation, now)
            case _:
                assert_never(operation.phase)
        if back is not None:
            self._rescaling.begin([(job, back)], at=at)

    # --- what it has ----------------------------------------------------------------------------

    def _record_size(self, job: RunningJob, now: Moment) -> None:
        """Record how many workers a job has, and who changed that."""
        tracked, size = job.tracked, job.size
        of, state, present = tracked.job, tracked.state, workers_of(tracked.job)
        if present != size.expected:
            if state.scale.changed_at != size.changed_at and not is_edited(tracked):
                self._jobs.adopt(job, now)
            elif present != state.admitted and (state.asked or not of.suspend):
                self._edited(job, present, now)
            size.expected = present
        size.changed_at = state.scale.changed_at
        size.sizes = self._jobs.sizes_of(tracked)
        if size.operation is not None and of.suspend and not of.held:
            size.end(at=now.monotonic)  # a person has stopped it, for as long as that person likes

    def _edited(self, job: RunningJob, workers: int, now: Moment) -> None:
        """Record that a person set the number of workers: that is the new wish.

        The policy leaves a job alone that two hands would resize, but not a job that it never
        touched.
        """
        touched = job.size.operation is not None or job.tracked.state.asked > 0
        job.size.end(at=now.monotonic)
        if touched:
            message = f"somebody set its number of workers to {workers}: that is the new wish"
            job.size.resting = f"{message}; set {names.ELASTIC} off and on to scale again"

    def _rest(self, job: RunningJob) -> Iterator[Found]:
        """Write on a job that it is left alone from now on, at the size that it has, or no more."""
        size, state = job.size, job.tracked.state
        if state.scale.rests and self._jobs.has_opted_out(job.tracked):
            size.resting = ""
        if size.resting is not None:
            scale = replace(size.remembered(state.scale), rests=size.resting, cause="")
            kept = replace(state, scale=scale)  # without a cause, so that nobody judges a change
            kept = kept if is_ours(job.tracked) else replace(kept, asked=0, admitted=0)
            yield job, SaveState(kept)

    def _is_void(self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...]) -> bool:
        """Return whether a change that is not written yet is not wanted any more."""
        cause, of = operation.change.cause, job.tracked.job
        # It gives back even what another hand scales by now; or the form of the job has changed.
        fixed = of.kueue_managed or why_one_size(of)
        if fixed if cause is Cause.GIVE_BACK else why_not_scaled(of):
            return True
        # What is taken back in place may be workers that found no place.
        in_place = cause is Cause.TAKE_BACK and not starts_anew(of)
        if not (in_place or all_running(job.tracked, pods)):
            return True
        return of.suspend or (job.scale_mode is not Mode.ACT and cause not in RESTORES)

    # --- what a change has brought --------------------------------------------------------------

    def settle(
        self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...], now: Moment
    ) -> Proposal | None:
        """Record which pods have come and gone; return what takes growth back."""
        size, at = job.size, now.monotonic
        late, grew = at - operation.since >= SETTLE_SECONDS, _grew(job, operation)
        if all_running(job.tracked, pods):
            if grew:
                size.unplaced = 0
            size.whole_at = at
            if starts_anew(job.tracked.job):
                size.started_at = at
            size.enter(Phase.MEASURING, at=at)
        elif grew and (late or job.tracked.state.strikes >= _STRIKES):
            size.grows_at = at + lengthened(size.unplaced)
            size.unplaced += 1
            # Workers that run may stay: to take back the others takes no checkpoint.
            kept = max(operation.before, min(_running(pods), size.sizes.now - 1))
            return _taken_back(job, kept, "the new workers have found no place")
        elif late:
            size.end(at=at)
        return None

    def step(
        self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...], now: Moment
    ) -> Step | str | None:
        """Record whether the job trains again; return a remedy if it hangs.

        The remedy is to replace its workers, once; then the reason why the job is left alone.
        """
        size, reported = job.size, self._progress.reported(job.uid)
        stepped = reported.progress.at if reported and reported.progress.step is not None else None
        ago = now.monotonic - operation.since
        if stepped is None:
            if ago >= _SILENT_SECONDS:
                size.end(at=now.monotonic)
        elif stepped > now.wall - ago:
            self._record_pause(job, now)
            if operation.change.cause is Cause.GROWTH and operation.before in size.speeds:
                size.speeds.pop(size.sizes.now, None)
                size.enter(Phase.TRIAL, at=now.monotonic)
            else:
                size.end(at=now.monotonic)
        elif ago >= self._patience(job):
            return self._remedy(job, operation, pods, now)
        return None

    def _remedy(
        self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...], now: Moment
    ) -> Step | str | None:
        """Return what to do with a job that has made no step for too long."""
        at, ago = now.monotonic, now.monotonic - operation.since
        read = self._progress.last_read(job.uid)
        was_read = read is not None and read > operation.since
        if not (was_read and self._progress.pause(job.uid)):
            # It may be what it does between two lines, and its workers would lose their work.
            if ago >= self._patience(job) + SETTLE_SECONDS:
                job.size.end(at=at)  # nothing more is seen of it
            return None
        whole = all_running(job.tracked, pods)
        if operation.restarted or starts_anew(job.tracked.job) or not whole:
            job.size.end(at=at)
            hangs = operation.restarted and whole
            return "it did not train on after its number of workers had changed" if hangs else None
        operation.restarted = True
        job.size.enter(Phase.SETTLING, at=at)
        message = f"no step for {ago:.0f} s since its number of workers has changed"
        return RestartWorkers(
            leaving(pods, 0), job.tracked.state, Verdict(names.REASON_RESCALING, message)
        )

    def judge(self, job: RunningJob, operation: ScaleOperation, now: Moment) -> Proposal | None:
        """Compare the speed of a job on trial; return what takes its growth back."""
        size, sizes, before = job.size, job.size.sizes, operation.before
        old, new = size.speeds.get(before), size.speeds.get(sizes.now)
        if old is not None and new is not None:
            if new < (1.0 + LEAST_GAIN) * old:
                size.failed = sizes.now
                why = f"it is not faster: {new:.3g} steps a second with {sizes.now} workers"
                back = sizes.asked if before < sizes.asked < sizes.now else before
                return _taken_back(job, back, f"{why}, {old:.3g} with {before}")
            size.end(at=now.monotonic)
        elif now.monotonic - operation.since >= _TRIAL_SECONDS:
            size.end(at=now.monotonic)
        return None

    def _patience(self, job: RunningJob) -> float:
        """Return how many seconds without a step are too many for a job."""
        return max(STEP_SECONDS, _SELDOM * self._progress.pause(job.uid))

    # --- how fast it is, and for how long a change stops it -------------------------------------

    def _measure(self, job: RunningJob, pods: tuple[Pod, ...], now: Moment) -> None:
        """Record how fast a job is, and for how long its start or its last change stopped it."""
        reported = self._progress.reported(job.uid)
        if reported is None or not all_running(job.tracked, pods):
            return
        job.size.measure(reported.progress, self._progress.restarts(job.uid))
        self._record_start(job, pods)
        lately = now.monotonic - job.size.whole_at <= WATCHED_SECONDS
        if lately and interrupts(job.tracked.job):
            self._record_pause(job, now)

    def _record_start(self, job: RunningJob, pods: tuple[Pod, ...]) -> None:
        """Record how long a job took to its first step, if it has never changed its size.

        A controller that met the job when it ran already may not have read its first lines.
        """
        size = job.size
        if size.pause or not size.starts or not pods:
            return
        created = max(pod.created for pod in pods)
        first = self._progress.resumed(job.uid, since=created, after=created)
        if first is not None:
            size.pause = first - created + grace_of(job.tracked.job)

    def _record_pause(self, job: RunningJob, now: Moment) -> None:
        """Record for how long the last change has stopped a job, by the times in its log."""
        changed_at = job.tracked.state.scale.changed_at
        unseen = now.wall - changed_at - (now.monotonic - job.size.settled_at)
        if unseen > _UNSEEN_SECONDS:
            return  # an earlier controller may have seen the first step
        whole = now.wall - (now.monotonic - job.size.whole_at)
        resumed = self._progress.resumed(job.uid, since=changed_at, after=whole)
        if resumed is not None:
            job.size.pause = resumed - changed_at


def _grew(job: RunningJob, operation: ScaleOperation) -> bool:
    """Return whether a job has more workers by an operation, and was not stopped for it."""
    return not starts_anew(job.tracked.job) and operation.change.workers > operation.before


def _taken_back(job: RunningJob, workers: int, why: str) -> Proposal:
    return workers_proposal(job.uid, Workers(Cause.TAKE_BACK, workers), why)


def _running(pods: tuple[Pod, ...]) -> int:
    """Return how many of the first workers of a job run, without a gap."""
    running = {
        pod.replica.index
        for pod in pods
        if pod.replica and pod.replica.type == WORKER.lower()
        if pod.phase == "Running" and not pod.deleting
    }
    return next(index for index in count() if index not in running)
