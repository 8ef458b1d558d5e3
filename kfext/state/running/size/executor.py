"""The executor that changes the number of workers of jobs, by the proposals of `scale`."""

from collections.abc import Sequence
from typing import ClassVar

from kfext import names
from kfext.core.elastic import starts_anew
from kfext.model.moment import Moment
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.checkpoint_requests import BACK_OFF_SECONDS, back_off_after
from kfext.state.running.executor import SCAN_SECONDS, Executor, Steps
from kfext.state.running.operation import Phase
from kfext.state.running.policy import Condition
from kfext.state.running.proposal import Cause, Change, Chosen, Proposal, Rank, Rescue, Workers
from kfext.state.running.running_job import RunningJob, has_kfext_size, is_edited
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.size.record import record_of
from kfext.state.running.size.rescaling import Rescaling, SizeStep
from kfext.state.running.size.scale import SCALE, SCALED
from kfext.state.running.size.scale_policy import ScaleProposals
from kfext.state.running.size.scale_search import ScaleSearch
from kfext.state.running.size.size_monitor import STEP_SECONDS, SizeMonitor
from kfext.state.running.size.words import size_shown

_RETRY_SECONDS = 30.0


class SizeExecutor(Executor):
    """Changes the number of workers of jobs."""

    change: ClassVar[type[Change]] = Workers
    condition: ClassVar[Condition] = SCALED

    def __init__(self, running: RunningJobs, search: ScaleSearch) -> None:
        super().__init__(running)
        self._rescaling = Rescaling(running, search)
        self._scale = ScaleProposals(running, self.jobs, self._rescaling, search=search)
        self._monitor = SizeMonitor(running, self._rescaling)

    def follows(
        self, tracked: TrackedJob, chosen: dict[str, PolicyChoice], job: RunningJob | None
    ) -> bool:
        """Return whether a job opted in, or kfext has scaled it.

        A job is also followed if a person edited its scaled size before the job opted out, so that
        its state forgets the size, and if an earlier controller stopped it.
        """
        if tracked.job.finished or tracked.job.deleting or tracked.job.released:
            return False
        changing = job is not None and record_of(job).operation is not None
        stopped = bool(tracked.state.scale.cause) and tracked.job.suspend and tracked.job.held
        opted_out = self.running.settings_of(tracked).elastic is None
        outdated = bool(tracked.state.scale.disabled) or (is_edited(tracked) and opted_out)
        return SCALE.name in chosen or has_kfext_size(tracked) or changing or stopped or outdated

    def rescues(self, uid: str) -> bool:
        """Return whether a rescue of a waiting job, by uid, is in progress."""
        return self._rescaling.rescues(uid)

    def keeps_hold(self, uid: str) -> bool:
        """Return whether a job was stopped to change its size."""
        job = self.jobs.get(uid)
        if job is None or record_of(job).phase is not Phase.SETTLING:
            return False
        return starts_anew(job.tracked.job)

    def on_added(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow the size of a job."""
        self.running.shown.hide(job.tracked, SCALED.type)  # it may be out of date
        self._monitor.on_added(job, now)

    def on_removed(self, job: RunningJob, now: Moment) -> None:
        """End an operation of the job."""
        self._progress.await_checkpoint(job.uid, awaited=False)
        record_of(job).end(at=now.monotonic)

    def advance(self, now: Moment) -> Steps:
        """Update the present sizes, and continue the operations."""
        steps: list[SizeStep] = []
        for job in self.jobs.values():
            if self.scanning or record_of(job).operation is not None:
                steps += self._monitor_steps(job, now)
        steps += self._rescaling.steps(now)
        return [(job.tracked, step) for job, step in steps]

    def propose(self, now: Moment) -> list[Proposal]:
        """Return the proposals of `scale`."""
        return self._scale.propose(now) if self.scanning else []

    def begin(self, chosen: Chosen, now: Moment) -> Steps:
        """Begin the chosen proposals, and update the condition of each job."""
        at, steps = now.monotonic, list[SizeStep]()
        if self.scanning:
            self._begin(chosen.act, at)
            for proposal in chosen.observe:
                record_of(self.jobs[proposal.job]).dry_run = proposal
            steps += self._rescaling.steps(now)
            for job in self.jobs.values():
                with self.running.failures.collect_errors_of(job.tracked):
                    self._show(job, now)
        if self._any_change(at):
            self._scale.record_act(at)
        return [(job.tracked, step) for job, step in steps]

    @property
    def changing(self) -> bool:
        """Whether the size of a job changes."""
        return any(record_of(job).operation is not None for job in self.jobs.values())

    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a write; `final`: why it was refused for good, or empty."""
        size, operation = record_of(job), record_of(job).operation
        if operation is None:
            size.disabled_reason = None if complete else size.disabled_reason
            if final:
                size.not_before = now + BACK_OFF_SECONDS
            return
        if operation.phase is not Phase.WRITING:
            if not complete and operation.phase is Phase.SETTLING:
                operation.restarted = False  # not all workers were replaced
            elif not complete:
                operation.request_number, size.asks_at = 0, now + SCAN_SECONDS  # ask again
            return
        if complete:
            size.expected, size.refused = operation.change.workers, None
            size.settled_at, size.missed = now, 0
            size.changed_at = job.tracked.state.scale.changed_at
            size.enter(Phase.SETTLING, at=now)
            return
        if operation.change.cause is Cause.UNDO_GROWTH and not starts_anew(job.tracked.job):
            self._monitor.retry_removal(job, operation, at=now)
            return
        back_off = _RETRY_SECONDS
        if final:  # without an answer the write may have arrived
            self._cluster.holds.release(job.uid)
            size.refused = Verdict(names.REASON_SCALE_REFUSED, final)
            back_off = back_off_after(size.missed)
            size.missed += 1  # other donors may have scaled down in vain
        size.end(at=now, back_off=back_off)

    def _any_change(self, at: float) -> bool:
        """Return whether a change of size is in progress or on trial; `at` is monotonic.

        It does not count once the first step at the new size takes longer than STEP_SECONDS.
        """
        return any(
            operation.phase is not Phase.MEASURING or at - operation.since < STEP_SECONDS
            for job in self.jobs.values()
            if (operation := record_of(job).operation) is not None
        )

    def _monitor_steps(self, job: RunningJob, now: Moment) -> list[SizeStep]:
        """Return the steps of the monitor; an error of kfext about the job affects no other job."""
        steps: list[SizeStep] | None = None
        with self.running.failures.collect_errors_of(job.tracked):
            steps = list(self._monitor.steps(job, now))
        if steps is None:
            record_of(job).end(at=now.monotonic, back_off=BACK_OFF_SECONDS)
        return steps or []

    def _begin(self, chosen: Sequence[Proposal], at: float) -> None:
        """Begin proposals; the donors of a waiting job begin together or not at all.

        A rescue cancels each scale-up that is not yet written.
        """
        groups: dict[str, list[Proposal]] = {}
        for proposal in chosen:
            rescue = _rescue_of(proposal)
            groups.setdefault(rescue.waiting if rescue else proposal.job, []).append(proposal)
        complete = [group for group in groups.values() if _is_complete(group)]
        if any(proposal.rank is Rank.RESCUE for group in complete for proposal in group):
            self._rescaling.drop_scale_ups(at=at)
        for group in complete:
            pairs = [(self.jobs[proposal.job], proposal) for proposal in group]
            self._rescaling.begin(pairs, at=at)

    def _show(self, job: RunningJob, now: Moment) -> None:
        unmanaged = job.tracked.phase is None
        if unmanaged or (job.mode(SCALE) is Mode.OFF and not has_kfext_size(job.tracked)):
            self.running.shown.show(job, SCALED.type, None)
            return
        ready = self._rescaling.readiness(job, now=now.wall)
        autoscaler = self._queue.autoscaler
        shown = size_shown(job, ready, now=now.monotonic, autoscaler=autoscaler)
        self.running.shown.show(job, SCALED.type, shown)


def _rescue_of(proposal: Proposal) -> Rescue | None:
    return proposal.change.rescue if isinstance(proposal.change, Workers) else None


def _is_complete(group: Sequence[Proposal]) -> bool:
    """Return whether a group of proposals has all donors of its rescue, if it has a rescue."""
    rescue = _rescue_of(group[0])
    return rescue is None or len(group) == len(rescue.sizes)
