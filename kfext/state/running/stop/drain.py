"""Jobs that leave their nodes as a whole: jobs on drained nodes, and stalled jobs.

A job on a drained node saves its work first. A stalled job that opted in answers no request, so it
stops at once and starts again from its last checkpoint. If other nodes have capacity, it avoids the
node of the pod that is the likely cause.

If other nodes have capacity, kfext holds it for the job, which starts there at once. Otherwise the
job waits in the queue, by its age. kfext places no pod on a drained node. Times are monotonic,
except that a float `now` is in epoch seconds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kfext import names
from kfext.core.eligibility import why_not_drained, why_not_moved
from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.lifecycle.steps import Step, Suspend
from kfext.core.placement.gang import members_of
from kfext.core.settings.values import ALWAYS
from kfext.model.moment import Moment
from kfext.model.plan import NO_SLOTS, Places
from kfext.model.verdict import Verdict
from kfext.state.mirror.holds import HOLD_SECONDS
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.capacity_search import CapacitySearch
from kfext.state.running.checkpoint_requests import record_miss
from kfext.state.running.executor import Steps
from kfext.state.running.operation import (
    ANSWER_SECONDS,
    STOP_SECONDS,
    Phase,
    Readiness,
    StopOperation,
)
from kfext.state.running.proposal import Proposal, Rank, Stop
from kfext.state.running.running_job import RunningJob, all_running, is_settled, is_whole
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.stop.record import record_of
from kfext.state.running.stop.stopping import JobStops
from kfext.state.running.stop.words import continues

MAX_RESTARTS = 2
"""A job that has stalled is restarted this often; after that a person must help."""


class Drains:
    """Moves `jobs`, the followed jobs, off drained nodes, and restarts stalled jobs."""

    def __init__(
        self,
        running: RunningJobs,
        jobs: Mapping[str, RunningJob],
        stops: JobStops,
        *,
        capacity: CapacitySearch,
    ) -> None:
        self._running = running
        self._cluster = running.cluster
        self._jobs = jobs
        self._stops = stops
        self._capacity = capacity

    def node_of(self, tracked: TrackedJob) -> str:
        """Return a drained node with pods of a job, or ""; nodes drained by force are last."""
        draining = self._cluster.draining
        if not draining or tracked.phase is None:
            return ""
        nodes = [node for node in self._cluster.homes(tracked.job.uid) if node in draining]
        return min(nodes, key=lambda node: (-len(draining[node]), node), default="")

    def leaves(self, job: RunningJob) -> bool:
        """Return whether a drain or a restart of a job is in progress."""
        operation = record_of(job).operation
        return operation is not None and operation.proposal.rank is Rank.DRAIN

    def keeps_hold(self, job: RunningJob) -> bool:
        """Return whether a job leaves its nodes and has a hold on capacity elsewhere."""
        return self.leaves(job) and self._cluster.holds.hold_of(job.uid) is not None

    def why_ineligible(self, job: RunningJob, *, now: float) -> Verdict | None:
        """Return the reason that a job cannot leave its drained node for now, or None."""
        settings = self._running.settings_of(job.tracked)
        by_force = self._by_force(job)
        if why_never := why_not_drained(job.tracked.job, settings, by_force=by_force):
            return why_never
        pods = self._cluster.pods(job.uid)
        # A job with an ended pod is about to end: it leaves only by force.
        if not (all_running(job.tracked, pods) or (by_force and is_whole(job.tracked, pods))):
            return Verdict(names.REASON_ON_DRAINED_NODE, "not all of its pods run")
        no_checkpoint = self._stops.lossless_readiness(job, now=now) is Readiness.NEVER
        if no_checkpoint and not (by_force or settings.preempt == ALWAYS):
            why = "it has shown no checkpoint yet: drain with --force"
            return Verdict(names.REASON_ON_DRAINED_NODE, why)
        return None

    def _by_force(self, job: RunningJob) -> bool:
        node = self.node_of(job.tracked)
        return self._cluster.draining.get(node) == names.DRAIN_BY_FORCE

    # --- the choice of the jobs -----------------------------------------------------------------

    def proposals(self, now: Moment) -> list[Proposal]:
        """Return the proposals to stop stalled jobs and jobs on drained nodes."""
        return [
            Proposal("drain", job.uid, Stop(), why.message, rank=Rank.DRAIN)
            for job in self._jobs.values()
            if is_settled(job)
            and job.tracked.plan is not None
            and now.monotonic >= record_of(job).not_before
            and (why := self._why(job, now=now.wall))
        ]

    def _why(self, job: RunningJob, *, now: float) -> Verdict | None:
        """Return the reason for a job to leave its nodes now, or None."""
        if stalled := self.stalled(job.tracked):
            return stalled
        node = self.node_of(job.tracked)
        leaves = node and not self.why_ineligible(job, now=now)
        return Verdict(names.REASON_DRAINED, f"{node} is drained") if leaves else None

    def stalled(self, tracked: TrackedJob) -> Verdict | None:
        """Return the reason to restart a stalled job from its last checkpoint, or None."""
        progress, settings = self._running.progress, self._running.settings_of(tracked)
        followed = progress.followed(tracked.job.uid)
        restarts = (
            settings.restarts_stalled
            and progress.silences.hangs(tracked.job, followed)
            and all_running(tracked, self._cluster.pods(tracked.job.uid))
            and tracked.state.stop.restarts < MAX_RESTARTS
            and followed.checkpoints.saved is not None
            and why_not_moved(tracked.job, settings) is None
        )
        return followed.judged if restarts else None

    def begin(self, proposal: Proposal, now: Moment) -> None:
        """Begin to wait for the checkpoint of a job."""
        job = self._jobs[proposal.job]
        # A drain must lose no step, so even a recent checkpoint is too old.
        last = self._stops.checkpoints(job).saved
        self._stops.begin(job, StopOperation(proposal, Phase.SAVING, now.monotonic, outdated=last))

    def advance(self, now: Moment) -> Steps:
        """Advance the jobs that leave their nodes."""
        steps: Steps = []
        for job in self._jobs.values():
            operation = record_of(job).operation
            if operation is None or not self.leaves(job) or job.tracked.busy:
                continue
            with self._running.failures.collect_errors_of(job.tracked):
                steps += [(job.tracked, step) for step in self._steps(job, operation, now)]
        return steps

    def _steps(self, job: RunningJob, operation: StopOperation, now: Moment) -> Iterator[Step]:
        waited = now.monotonic - operation.since
        if operation.phase is not Phase.SAVING:
            training = job.tracked.job
            longest = HOLD_SECONDS if training.suspend else STOP_SECONDS
            written = operation.phase is not Phase.WRITING
            continues_here = written and not training.suspend and not self.node_of(job.tracked)
            by_others = training.suspend and not training.in_queue
            if waited >= longest or continues_here or by_others:
                self.end(job)
            return
        if (why := self._why(job, now=now.wall)) is None:
            self.end(job)
            return
        ready, late = self._stops.lossless_readiness(job, now=now.wall), waited >= ANSWER_SECONDS
        saved = why.reason == names.REASON_STALLED or ready in {Readiness.READY, Readiness.NEVER}
        if saved or (late and self._by_force(job)):
            yield self._stop(job, why, now)
        elif ready is Readiness.ASK and late:
            record_miss(record_of(job), at=now.monotonic)
            self.end(job)
        elif step := self._stops.request(job, now):
            yield step

    def _stop(self, job: RunningJob, why: Verdict, now: Moment) -> Suspend:
        """Return the write that stops a job, and hold capacity for it elsewhere, if any is free."""
        tracked, stop = job.tracked, job.tracked.state.stop
        stalled = why.reason == names.REASON_STALLED
        start = self._running.progress.followed(job.uid).start
        avoided = {start.cause.node} if stalled and start and start.cause else set()
        places = self._capacity.new_places(job, now=now.wall, doubted=avoided)
        if places is not None:
            members, hold = members_of(tracked.job), Places(places, NO_SLOTS)
            until = now.wall + HOLD_SECONDS
            self._cluster.holds.hold(HoldKind.MOVE, job.uid, members, hold, until=until)
        message = f"{why.message}; {continues(self._stops.checkpoints(job))}"
        restarts = stop.restarts + stalled
        stop = replace(stop, at=now.wall, waiting="", places={}, restarts=restarts)
        step = self._stops.stop(job, why.reason, message, stop, now)
        excluded = avoided.difference(places.values()) if places else ()
        return replace(step, state=step.state.with_excluded(excluded, now=now.wall))

    def end(self, job: RunningJob) -> None:
        """End the operation of a job; after a drain or a restart, also release its hold."""
        left, hold = self.leaves(job), self._cluster.holds.hold_of(job.uid)
        self._stops.end(job)
        if left and hold is not None and hold.kind is HoldKind.MOVE:
            self._cluster.holds.release(job.uid)

    def shown(self, job: RunningJob, *, now: float) -> Verdict | None:
        """Return the verdict to show on a stalled job or a job on a drained node, or None."""
        node, record = self.node_of(job.tracked), record_of(job)
        if not node:
            return self.stalled(job.tracked)
        if self.leaves(job):
            message = f"{node} is being drained: it saves its work, and then leaves"
            return Verdict(names.REASON_AWAITS_CHECKPOINT, message)
        why = self.why_ineligible(job, now=now) or record.refused
        message = f"{node} is being drained: {why.message if why else 'it leaves soon'}"
        return Verdict(names.REASON_ON_DRAINED_NODE, message)
