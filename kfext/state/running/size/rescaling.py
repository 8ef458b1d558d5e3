"""Carries out a change of size up to its write: a checkpoint first, then one write for each job.

Each decision is checked again before the write, because a checkpoint may take two minutes.
Meanwhile the waiting job may have found capacity, other jobs may have scaled up, and a person may
have changed a size. Times are monotonic, except that a float `now` is in epoch seconds.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kfext import names
from kfext.core import words
from kfext.core.elastic import interrupts, starts_anew, with_workers, workers_of
from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.ledger.claims import pod_key
from kfext.core.lifecycle.patience import suspended
from kfext.core.lifecycle.situation import next_plan
from kfext.core.lifecycle.steps import Rescale, Step, Suspend
from kfext.core.placement.gang import members_of
from kfext.model.moment import Moment
from kfext.model.plan import NO_SLOTS, Assignment, Places
from kfext.model.verdict import Verdict
from kfext.state.mirror.holds import HOLD_SECONDS
from kfext.state.running.capacity_search import GrowthLimit
from kfext.state.running.checkpoint_requests import (
    BACK_OFF_SECONDS,
    CheckpointRequests,
    record_miss,
)
from kfext.state.running.operation import ANSWER_SECONDS, Phase, Readiness, ScaleOperation
from kfext.state.running.proposal import GAINS, Cause, Proposal, Rescue, Workers
from kfext.state.running.running_job import RunningJob, leaving
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.size.record import record_of
from kfext.state.running.size.scale import HORIZON
from kfext.state.running.size.scale_search import ScaleSearch

SizeStep = tuple[RunningJob, Step]
"""A job and the step to write for a change of its size."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """Operations that are written together or not at all; `since` is monotonic.

    `asked_again`: whether jobs with stale checkpoints have been asked again.
    `predecessor`: the job of the same rescue with a refused earlier write; it is written first.
    """

    jobs: tuple[RunningJob, ...]
    since: float
    asked_again: bool = False
    predecessor: RunningJob | None = None

    @property
    def changes(self) -> list[Workers]:
        """The changes of the jobs."""
        operations = (record_of(job).operation for job in self.jobs)
        return [operation.change for operation in operations if operation is not None]

    @property
    def rescue(self) -> Rescue | None:
        """The rescue with these jobs as donors, if any."""
        return next((change.rescue for change in self.changes), None)


class Rescaling:
    """The changes of size that are not yet written.

    `search`: checks sizes again before they are written.
    """

    def __init__(self, running: RunningJobs, search: ScaleSearch) -> None:
        self._running = running
        self._cluster, self._progress = running.cluster, running.progress
        self._search = search
        self._capacity = search.capacity
        self._requests = CheckpointRequests(running.progress)
        self._open: list[_Decision] = []

    @property
    def rescuing(self) -> bool:
        """Whether the donors of any waiting job are about to scale down."""
        return any(decision.rescue is not None for decision in self._open)

    def rescues(self, uid: str) -> bool:
        """Return whether donors are about to scale down for a waiting job, by uid."""
        rescues = (decision.rescue for decision in self._open)
        return any(rescue is not None and rescue.waiting == uid for rescue in rescues)

    def begin(self, proposals: Iterable[tuple[RunningJob, Proposal]], *, at: float) -> None:
        """Begin operations that are written together."""
        jobs = []
        for job, proposal in proposals:
            assert isinstance(proposal.change, Workers)
            record_of(job).begin(proposal, proposal.change, Phase.SAVING, at=at)
            awaited = self._interrupts(job)
            self._progress.await_checkpoint(job.uid, awaited=awaited)
            jobs.append(job)
        self._open.append(_Decision(tuple(jobs), at))

    def scaling_up(self) -> list[RunningJob]:
        """Return the jobs with a scale-up that is not yet written."""
        return [job for decision in self._scale_ups() for job in decision.jobs]

    def drop_scale_ups(self, *, at: float) -> None:
        """Cancel each scale-up that is not yet written, because its capacity is needed."""
        for decision in self._scale_ups():
            self._drop(decision, at=at)

    def _scale_ups(self) -> list[_Decision]:
        return [
            decision
            for decision in self._open
            if any(change.cause in GAINS for change in decision.changes)
        ]

    def steps(self, now: Moment) -> Iterator[SizeStep]:
        """Yield the steps to write now."""
        for decision in list(self._open):
            first = record_of(decision.predecessor) if decision.predecessor else None
            writes = first is not None and first.phase is Phase.WRITING
            failed = first is not None and first.refused is not None and not writes
            if failed or any(record_of(job).phase is not Phase.SAVING for job in decision.jobs):
                self._drop(decision, at=now.monotonic)  # the change of a job was given up
            elif not (writes or any(job.tracked.busy for job in decision.jobs)):
                yield from self._attempt(decision, now)

    def _attempt(self, decision: _Decision, now: Moment) -> list[SizeStep]:
        """Return the steps of a decision; an error of kfext cancels the decision."""
        steps: list[SizeStep] | None = None
        with self._running.failures.collect_errors_of(decision.jobs[0].tracked):
            steps = list(self._steps(decision, now))
        if steps is None:
            self._open = [other for other in self._open if other is not decision]
            for job in decision.jobs:
                self._stop_awaiting_checkpoint(job)
                job.tracked.end_step()
                self._cluster.sync_claims(job.tracked)
                record_of(job).end(at=now.monotonic, back_off=BACK_OFF_SECONDS)
        return steps or []

    def _steps(self, decision: _Decision, now: Moment) -> Iterator[SizeStep]:
        ready = {job.uid: self.readiness(job, now=now.wall) for job in decision.jobs}
        not_ready = [job for job in decision.jobs if ready[job.uid] is not Readiness.READY]
        stale = list[ScaleOperation]()
        if not (not_ready or decision.asked_again):
            stale = self._stale_operations(decision.jobs, now=now.wall)
        if stale:
            for operation in stale:
                operation.request_number = 0
            index = self._open.index(decision)
            self._open[index] = replace(decision, since=now.monotonic, asked_again=True)
        elif not not_ready:
            self._open.remove(decision)
            yield from self._write(decision, now)
        elif now.monotonic - decision.since >= ANSWER_SECONDS:
            for job in not_ready:
                record_miss(record_of(job), at=now.monotonic)
            self._drop(decision, at=now.monotonic)
        else:
            for job in not_ready:
                must_ask, record = ready[job.uid] is Readiness.ASK, record_of(job)
                if must_ask and record.operation is not None and now.monotonic >= record.asks_at:
                    step = self._requests.request(job.uid, record.operation)
                    if step is not None:
                        yield job, step

    def _drop(self, decision: _Decision, *, at: float) -> None:
        self._open.remove(decision)
        self._end(decision, at=at)

    def _end(self, decision: _Decision, *, at: float) -> None:
        for job in decision.jobs:
            self._stop_awaiting_checkpoint(job)  # also if the operation ended for another reason
            if record_of(job).phase is Phase.SAVING:
                record_of(job).end(at=at)

    # --- checkpoints ----------------------------------------------------------------------------

    def readiness(self, job: RunningJob, *, now: float) -> Readiness:
        """Return how ready a job is for a change of its size."""
        interrupts = self._interrupts(job) and not self.loses_nothing(job, now=now)
        operation = record_of(job).operation
        return self._requests.readiness(job.uid, operation, interrupts=interrupts, now=now)

    def loses_nothing(self, job: RunningJob, *, now: float) -> bool:
        """Return whether a job below its requested size has made no step yet, according to its log.

        The log must have been read since the operation began. The job may have made steps that
        kfext does not recognise, so its pods must also be young: a restart must lose less time than
        the missing workers save within HORIZON.
        """
        sizes, reported = record_of(job).sizes, self._progress.reported(job.uid)
        if sizes.now >= sizes.requested or reported is None or reported.progress.step is not None:
            return False
        created = (pod.created for pod in self._cluster.pods(job.uid))
        age = now - min(created, default=-math.inf)
        operation = record_of(job).operation
        saving = operation is not None and operation.phase is Phase.SAVING
        begun = operation.since if operation is not None and saving else -math.inf
        read = self._progress.last_read(job.uid)
        return (
            read is not None and read > begun and age <= HORIZON * (1 - sizes.now / sizes.requested)
        )

    def _stale_operations(self, jobs: Iterable[RunningJob], *, now: float) -> list[ScaleOperation]:
        """Return the operations with a checkpoint that is stale by now."""
        return [
            operation
            for job in jobs
            if (operation := record_of(job).operation) is not None
            if self._requests.is_stale(job.uid, operation, now=now)
        ]

    def _stop_awaiting_checkpoint(self, job: RunningJob) -> None:
        self._progress.await_checkpoint(job.uid, awaited=False)

    def _interrupts(self, job: RunningJob) -> bool:
        """Return whether a change of its size costs a job its work since the last checkpoint.

        The removal of workers that never ran does not affect the other workers.
        """
        operation = record_of(job).operation
        if operation is not None and operation.change.cause is Cause.UNDO_GROWTH:
            removed = leaving(self._cluster.pods(job.uid), operation.change.workers)
            if not any(pod.phase == "Running" for pod in removed):
                return False
        return interrupts(job.tracked.job)

    # --- the write ------------------------------------------------------------------------------

    def _write(self, decision: _Decision, now: Moment) -> Iterator[SizeStep]:
        """Yield the writes of a decision after all its jobs have saved their work.

        A job with a refused change is written alone and first, so that no other donor scales down
        in vain.
        """
        rescue = decision.rescue
        if rescue is not None:
            if not self._search.still_needed(rescue, now=now.wall):
                self._end(decision, at=now.monotonic)
                return
            self._hold(rescue, now)
        refused = [job for job in decision.jobs if record_of(job).refused is not None]
        jobs = refused[:1] or decision.jobs
        if later := tuple(job for job in decision.jobs if all(job is not other for other in jobs)):
            self._open.append(_Decision(later, now.monotonic, predecessor=jobs[0]))
        for job in jobs:
            self._stop_awaiting_checkpoint(job)
            step = self._step(job, now)
            if step is None:
                record_of(job).end(at=now.monotonic)
            else:
                record_of(job).enter(Phase.WRITING, at=now.monotonic)
                yield job, step

    def _hold(self, rescue: Rescue, now: Moment) -> None:
        """Hold the donors' capacity for the waiting job: their pods free it one at a time."""
        waiting = self._cluster.jobs[rescue.waiting]
        waiting.last_rescue = waiting.state.strikes, now.wall
        places = self._search.places(waiting, rescue.workers, rescue.sizes, now=now.wall)
        if places is not None:
            members = members_of(with_workers(waiting.job, rescue.workers))
            self._cluster.holds.hold(
                HoldKind.RESCUE, rescue.waiting, members, places, until=now.wall + HOLD_SECONDS
            )

    def restore_hold(self, job: RunningJob, now: Moment) -> None:
        """Hold capacity for a job that an earlier controller stopped to change its size.

        The capacity of its old pods, if they still exist, counts as free.
        """
        with self._running.failures.collect_errors_of(job.tracked):
            training = job.tracked.job
            stopped = training.suspend and training.held and starts_anew(training)
            if not stopped or self._cluster.holds.claims_of(job.uid):
                return
            places = self._capacity.waiting_places(
                job.tracked,
                workers_of(training),
                now=now.wall,
                gone=[pod_key(pod.uid) for pod in self._cluster.pods(job.uid)],
            )
            if places is not None:
                members, until = members_of(training), now.wall + HOLD_SECONDS
                self._cluster.holds.hold(HoldKind.SIZE, job.uid, members, places, until=until)

    def _step(self, job: RunningJob, now: Moment) -> Step | None:
        """Return the write of a job's new size; None means that there is no capacity."""
        operation, present = record_of(job).operation, record_of(job).sizes.now
        if operation is None:
            return None
        if operation.change.workers < present:
            places: Assignment | None = self._capacity.fewer_places(job, operation.change.workers)
        else:
            most = min(operation.change.workers, self._most_now(job, operation, now))
            if most <= present:
                return None
            operation.change = replace(operation.change, workers=most)
            places = self._capacity.more_places(job, most, now=now.wall)
        return None if places is None else self._size_step(job, operation, places, now)

    def _most_now(self, job: RunningJob, operation: ScaleOperation, now: Moment) -> int:
        """Return the largest size that is possible now: other jobs may have scaled up meanwhile."""
        limit = self._capacity.limit(now=now.wall)
        if operation.change.cause is not Cause.RESTORE_REQUESTED:
            return self._search.size(job, limit, now=now.wall)
        sizes = record_of(job).sizes
        if limit is GrowthLimit.NONE:
            return sizes.now
        up_to = min(sizes.most, operation.change.workers)
        return self._capacity.most_workers(job, sizes.now, up_to=up_to, now=now.wall)

    def _size_step(
        self, job: RunningJob, operation: ScaleOperation, places: Assignment, now: Moment
    ) -> Step:
        tracked, change, present = job.tracked, operation.change, record_of(job).sizes.now
        state = record_of(job).state_with(
            tracked.state,
            change.workers,
            cause=change.cause,
            downtime=job.restart.downtime,
            now=now.wall,
        )
        plan = tracked.plan
        why = f"{words.rescaled(present, change.workers)}: {operation.proposal.reason}"
        if starts_anew(tracked.job):
            state = replace(state, reason=names.REASON_RESCALING, message=why)
            pods = self._cluster.pods(job.uid)
            state = suspended(state, tracked.job, pods, plan=plan, now=now.wall)
            members = members_of(with_workers(tracked.job, change.workers))
            hold, until = Places(places, NO_SLOTS), now.wall + HOLD_SECONDS
            self._cluster.holds.hold(HoldKind.SIZE, job.uid, members, hold, until=until)
            return Suspend(state, workers=change.workers)
        port = plan.port if plan else 0
        following = next_plan(
            plan, tracked.state, places, job_uid=job.uid, port=port, why=why, now=now.wall
        )
        reason = names.REASON_SHRUNK if change.workers < present else names.REASON_GROWN
        # Claim now, so that no other change or job start in this planning round uses the capacity.
        tracked.assumed, tracked.assumed_workers = following, change.workers
        self._cluster.sync_claims(tracked)
        return Rescale(following, change.workers, state, Verdict(reason, why))
