"""Monitors the sizes of jobs: who changed a size, and what effect the change had."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import assert_never

from kfext import names
from kfext.core import words
from kfext.core.elastic import (
    interrupts,
    requested_workers,
    starts_anew,
    why_not_scaled,
    why_one_size,
    workers_of,
)
from kfext.core.lifecycle.steps import RestartWorkers, SaveState, Step
from kfext.core.settings.values import Range
from kfext.model.kinds.job_kind import WORKER
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import Mode
from kfext.model.timestamps import past
from kfext.model.verdict import Verdict
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.checkpoint_requests import back_off_after
from kfext.state.running.operation import Phase, ScaleOperation
from kfext.state.running.proposal import RESTORES, Cause, Proposal, Workers
from kfext.state.running.restarts import record_start
from kfext.state.running.running_job import (
    RunningJob,
    all_running,
    has_kfext_size,
    is_edited,
    leaving,
)
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.size.record import record_of, restored_record
from kfext.state.running.size.rescaling import Rescaling, SizeStep
from kfext.state.running.size.scale import MIN_GAIN, SCALE, Sizes, sizes_of, workers_proposal

STEP_SECONDS = 120.0
"""A job without a step for this long counts as hung; see _HANG_FACTOR for rare output."""
ADOPT_SECONDS = 600.0
"""A new controller adopts a change that is younger than this."""

SETTLE_SECONDS = 300.0
"""The longest wait for pods to be created or deleted: a pod on a lost node may never end."""
_RETRY_SECONDS = 30.0
"""A refused write that removes workers without a node is repeated after this time."""
WATCHED_SECONDS = 60.0
"""For this long after all pods run, the log is read again for the end of the downtime: under
torchrun the old processes may print steps for seconds before the rendezvous."""
_HANG_FACTOR = 4
"""A silence counts as a hang at this many times the longest silence in the log so far."""
_SILENT_SECONDS = 60.0
"""The longest wait for the first step of a job that has never printed a step."""
_TRIAL_SECONDS = 180.0
"""The longest time in which the new speed must be measured; otherwise the new size stays."""
_STRIKES = 2
"""New pods are removed after this many strikes, because a third would release the job."""
_UNSEEN_SECONDS = 30.0
"""The downtime of a change is measured only if kfext observed the change within this time."""


class SizeMonitor:
    """Updates the records of sizes and advances operations; `rescaling` undoes scale-ups."""

    def __init__(self, running: RunningJobs, rescaling: Rescaling) -> None:
        self._running = running
        self._cluster, self._progress = running.cluster, running.progress
        self._rescaling = rescaling

    def on_added(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow the size of a job, and adopt a change of an earlier controller.

        A change is not adopted if a person edited the job while no controller ran.
        """
        tracked = job.tracked
        job.replace_record(restored_record(tracked, self._sizes_of(tracked)))
        job.restart.was_starting = not all_running(tracked, self._cluster.pods(job.uid))
        if not job.restart.was_starting:
            job.restart.running_since = now.monotonic  # its progress is not read yet
        state = tracked.state.scale
        if is_edited(tracked):
            record_of(job).expected = tracked.state.assigned
        elif state.cause and now.wall - past(state.changed_at, now=now.wall) < ADOPT_SECONDS:
            self._adopt(job, now)

    def steps(self, job: RunningJob, now: Moment) -> Iterator[SizeStep]:
        """Update the record of a job, and yield the steps to write."""
        if job.tracked.busy:
            return
        self._record_size(job, now)
        pods = self._cluster.pods(job.uid)
        if record_of(job).phase in {None, Phase.TRIAL}:
            self._measure(job, pods, now)
        if (operation := record_of(job).operation) is not None:
            yield from self._advance(job, operation, pods, now)
        if record_of(job).operation is None:
            yield from self._update_disabled(job, now)

    def _advance(
        self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...], now: Moment
    ) -> Iterator[SizeStep]:
        """Advance an operation, and yield the step to write, if any."""
        tracked, at = job.tracked, now.monotonic
        undo: Proposal | None = None
        match operation.phase:
            case Phase.SAVING:
                if self._is_void(job, operation, pods):
                    record_of(job).end(at=at)
            case Phase.WRITING:
                record_of(job).end(at=at)  # kfext failed before it wrote the step
                tracked.end_step()
                self._cluster.sync_claims(tracked)
            case Phase.SETTLING:
                undo = self.check_pods(job, operation, pods, now)
            case Phase.MEASURING:
                remedy = self.check_training(job, operation, pods, now)
                if isinstance(remedy, str):
                    record_of(job).disabled_reason = remedy
                elif remedy is not None:
                    yield job, remedy
            case Phase.TRIAL:
                undo = self.check_speed(job, operation, now)
            case _:
                assert_never(operation.phase)
        if undo is not None:
            self._rescaling.begin([(job, undo)], at=at)

    def _adopt(self, job: RunningJob, now: Moment) -> None:
        """Follow a change by an earlier controller, or a write without a response to this one."""
        size, state, current = record_of(job), job.tracked.state.scale, workers_of(job.tracked.job)
        size.sizes = replace(size.sizes, now=state.before or current)
        cause = Cause(state.cause) if state.cause in tuple(Cause) else Cause.REGROW
        why = words.rescaled(size.sizes.now, current)
        change = Workers(cause, current)
        proposal = workers_proposal(job.uid, change, why)
        size.begin(proposal, change, Phase.SETTLING, at=now.monotonic)
        size.expected, size.settled_at = current, now.monotonic
        size.changed_at = state.changed_at
        self._rescaling.restore_hold(job, now)

    def _sizes_of(self, tracked: TrackedJob) -> Sizes:
        """Return the sizes of a job; a job that is not elastic has only its requested size."""
        requested = requested_workers(tracked.job, tracked.state)
        elastic = self._running.settings_of(tracked).elastic or Range(requested, requested)
        return sizes_of(tracked.job, elastic, requested=requested)

    # --- the present size -----------------------------------------------------------------------

    def _record_size(self, job: RunningJob, now: Moment) -> None:
        """Record the number of workers of a job, and whether a person has changed it."""
        tracked, size = job.tracked, record_of(job)
        training, state, current = tracked.job, tracked.state, workers_of(tracked.job)
        if current != size.expected:
            if state.scale.changed_at != size.changed_at and not is_edited(tracked):
                self._adopt(job, now)
            elif current != state.assigned and (state.requested or not training.suspend):
                self._record_edit(job, current, now)
            size.expected = current
        size.changed_at = state.scale.changed_at
        size.sizes = self._sizes_of(tracked)
        if size.operation is not None and training.suspend and not training.held:
            size.end(at=now.monotonic)  # a person suspended the job

    def _record_edit(self, job: RunningJob, workers: int, now: Moment) -> None:
        """Record that a person set the number of workers, which is the new requested size.

        If kfext had changed the size of the job before, the policy is disabled for the job, so that
        kfext and the person do not work against each other.
        """
        by_kfext = record_of(job).operation is not None or job.tracked.state.requested > 0
        record_of(job).end(at=now.monotonic)
        if by_kfext:
            message = f"a person set its number of workers to {workers}, now its requested size"
            again = f"set {names.ELASTIC} to off, then to MIN-MAX again, to let kfext scale it"
            record_of(job).disabled_reason = f"{message}; {again}"

    def _update_disabled(self, job: RunningJob, now: Moment) -> Iterator[SizeStep]:
        """Yield the step that disables the policy for a job or enables it again, if needed."""
        size, state = record_of(job), job.tracked.state
        if state.scale.disabled and self._running.settings_of(job.tracked).elastic is None:
            size.disabled_reason = ""
        if size.disabled_reason is not None and now.monotonic >= size.not_before:
            scale = replace(
                size.with_measurements(state.scale, downtime=job.restart.downtime),
                disabled=size.disabled_reason,
                cause="",  # the last change is over
            )
            disabled_state = replace(state, scale=scale)
            if not has_kfext_size(job.tracked):
                disabled_state = replace(disabled_state, requested=0, assigned=0)
            yield job, SaveState(disabled_state)

    def _is_void(self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...]) -> bool:
        """Return whether a change that is not written yet must not be written any more."""
        cause, training = operation.change.cause, job.tracked.job
        # kfext restores the requested size even if another client scales the job by now, unless
        # the job can no longer change its size at all.
        fixed = training.started_by or why_one_size(training)
        if fixed if cause is Cause.RESTORE_REQUESTED else why_not_scaled(training):
            return True
        if cause is Cause.RESCUE and operation.change.workers < record_of(job).sizes.least:
            return True  # its user has raised MIN meanwhile
        # Such a change may remove workers that found no node, so not all pods have to run.
        removes = cause is Cause.UNDO_GROWTH and not starts_anew(training)
        if not (removes or all_running(job.tracked, pods)):
            return True
        return training.suspend or (job.mode(SCALE) is not Mode.ACT and cause not in RESTORES)

    # --- the effect of a change -----------------------------------------------------------------

    def check_pods(
        self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...], now: Moment
    ) -> Proposal | None:
        """Record whether all pods run at the new size; return the proposal to undo a scale-up."""
        size, at = record_of(job), now.monotonic
        late, scaled_up = at - operation.since >= SETTLE_SECONDS, _has_scaled_up(job, operation)
        if all_running(job.tracked, pods):
            if scaled_up:
                size.unplaced = 0
            size.all_running_at = at
            self._progress.followed(job.uid).course.restart_rate(now.wall)
            if starts_anew(job.tracked.job):
                job.restart.running_since = at
            size.enter(Phase.MEASURING, at=at)
        elif scaled_up and (late or job.tracked.state.strikes >= _STRIKES):
            size.may_scale_up_at = at + back_off_after(size.unplaced)
            size.unplaced += 1
            # New workers that run stay: the removal of the others needs no checkpoint.
            workers = max(operation.before, min(_running(pods), size.sizes.now - 1))
            return _undo_proposal(job, workers, "the new workers have found no nodes")
        elif late:
            size.end(at=at)
        return None

    def retry_removal(self, job: RunningJob, operation: ScaleOperation, *, at: float) -> None:
        """Wait again for new workers after their removal was refused, for _RETRY_SECONDS."""
        workers, present = operation.change.workers, record_of(job).sizes.now
        operation.before, operation.change = workers, Workers(Cause.REGROW, present)
        record_of(job).enter(Phase.SETTLING, at=at + _RETRY_SECONDS - SETTLE_SECONDS)

    def check_training(
        self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...], now: Moment
    ) -> Step | str | None:
        """Record whether the job trains again after a change; return a remedy if it hangs.

        At the first hang, return the step that replaces the workers; at the second, the reason to
        disable the policy.
        """
        size, reported = record_of(job), self._progress.reported(job.uid)
        progress = reported.progress if reported else None
        last_step_at = progress.at if progress and progress.step is not None else None
        elapsed = now.monotonic - operation.since
        since = now.wall - elapsed
        if not self._was_seen(job, now):  # the job may have trained before this controller ran
            newest = max((pod.created for pod in pods), default=0.0)
            since = min(since, max(size.changed_at + WATCHED_SECONDS, newest))
        if last_step_at is None:
            if elapsed >= _SILENT_SECONDS:
                size.end(at=now.monotonic)
        elif last_step_at > since:
            self._record_downtime(job, now)
            if operation.change.cause is Cause.GROWTH and operation.before in size.speeds:
                size.speeds.pop(size.sizes.now, None)
                size.enter(Phase.TRIAL, at=now.monotonic)
            else:
                size.end(at=now.monotonic)
        elif elapsed >= self._patience(job):
            return self._remedy(job, operation, pods, now)
        return None

    def _remedy(
        self, job: RunningJob, operation: ScaleOperation, pods: tuple[Pod, ...], now: Moment
    ) -> Step | str | None:
        """Return the remedy for a job that has made no step for too long, or None."""
        at, elapsed = now.monotonic, now.monotonic - operation.since
        read = self._progress.last_read(job.uid)
        was_read = read is not None and read > operation.since
        if not (was_read and self._progress.followed(job.uid).pause):
            # The job may train without printing, and its workers would lose their work.
            if elapsed >= self._patience(job) + SETTLE_SECONDS:
                record_of(job).end(at=at)  # its log may never show a step
            return None
        all_run = all_running(job.tracked, pods)
        if operation.restarted or starts_anew(job.tracked.job) or not all_run:
            record_of(job).end(at=at)
            hangs = operation.restarted and all_run
            return "it did not train again after its number of workers changed" if hangs else None
        operation.restarted = True
        record_of(job).enter(Phase.SETTLING, at=at)
        message = f"it made no step in {elapsed:.0f} s since its number of workers changed"
        return RestartWorkers(
            leaving(pods, 0), job.tracked.state, Verdict(names.REASON_RESCALING, message)
        )

    def check_speed(
        self, job: RunningJob, operation: ScaleOperation, now: Moment
    ) -> Proposal | None:
        """Compare the speeds of a job on trial; return the proposal that undoes its scale-up."""
        size, sizes, before = record_of(job), record_of(job).sizes, operation.before
        old, new = size.speeds.get(before), size.speeds.get(sizes.now)
        if old is not None and new is not None:
            if new < (1.0 + MIN_GAIN) * old:
                size.failed = sizes.now
                why = f"it is not {MIN_GAIN:.0%} faster: {new:.3g} steps a second with"
                workers = sizes.requested if before < sizes.requested < sizes.now else before
                return _undo_proposal(
                    job, workers, f"{why} {sizes.now} workers, {old:.3g} with {before}"
                )
            size.end(at=now.monotonic)
        elif now.monotonic - operation.since >= _TRIAL_SECONDS:
            size.end(at=now.monotonic)
        return None

    def _patience(self, job: RunningJob) -> float:
        """Return the seconds without a step after which the job counts as hung."""
        return max(STEP_SECONDS, _HANG_FACTOR * self._progress.followed(job.uid).pause)

    # --- speed and downtime ---------------------------------------------------------------------

    def _measure(self, job: RunningJob, pods: tuple[Pod, ...], now: Moment) -> None:
        """Record the speed of a job, and the downtime of its start or its last change."""
        reported = self._progress.reported(job.uid)
        if reported is None or not all_running(job.tracked, pods):
            return
        restarts = self._progress.followed(job.uid).course.restarts
        record_of(job).measure(reported.progress, restarts)
        record_start(job, self._progress, pods)
        if now.monotonic - record_of(job).all_running_at <= WATCHED_SECONDS:
            self._record_downtime(job, now)

    def _record_downtime(self, job: RunningJob, now: Moment) -> None:
        """Record how long the last change stopped the job, from the times in its log."""
        if not (interrupts(job.tracked.job) and self._was_seen(job, now)):
            return  # the first step may be older than this controller
        changed_at = job.tracked.state.scale.changed_at
        all_ran = now.wall - (now.monotonic - record_of(job).all_running_at)
        course = self._progress.followed(job.uid).course
        resumed = course.resumed_at(since=changed_at, after=all_ran)
        if resumed is not None:
            job.restart.downtime = resumed - changed_at

    def _was_seen(self, job: RunningJob, now: Moment) -> bool:
        """Return whether this controller observed the last change soon after its write."""
        since_write = now.wall - job.tracked.state.scale.changed_at
        since_observed = now.monotonic - record_of(job).settled_at
        return since_write - since_observed <= _UNSEEN_SECONDS


def _has_scaled_up(job: RunningJob, operation: ScaleOperation) -> bool:
    """Return whether an operation added workers without stopping the job."""
    return not starts_anew(job.tracked.job) and operation.change.workers > operation.before


def _undo_proposal(job: RunningJob, workers: int, why: str) -> Proposal:
    return workers_proposal(job.uid, Workers(Cause.UNDO_GROWTH, workers), why)


def _running(pods: tuple[Pod, ...]) -> int:
    """Return the number of running workers before the first missing index."""
    running = {
        pod.replica.index
        for pod in pods
        if pod.replica and pod.replica.type == WORKER.lower()
        if pod.phase == "Running" and not pod.deleting
    }
    return next(index for index in count() if index not in running)
