"""The executor of moves: a checkpoint, a write that suspends the job, and a start on new nodes.

The planner starts the job again like any suspended job. Until its pods run, kfext holds capacity
for it on its new nodes and on its former nodes. The job may use both: if it no longer fits on the
new nodes, the planner places it on the former nodes, or on any others. Times are monotonic, except
that a float `now` is in epoch seconds.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, assert_never

from kfext import names
from kfext.core import words
from kfext.core.elastic import workers_of
from kfext.core.eligibility import why_not_moved
from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.lifecycle.queued import SETTLE_SECONDS
from kfext.core.lifecycle.steps import Step
from kfext.core.placement.gang import members_of, present
from kfext.model.moment import Moment
from kfext.model.plan import NO_SLOTS, Assignment, Places
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.scale_state import MoveState
from kfext.model.timestamps import past, written_time
from kfext.model.verdict import Verdict
from kfext.state.mirror.holds import HOLD_SECONDS
from kfext.state.mirror.timers import RoundRobin
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.capacity_search import CapacitySearch, GrowthLimit
from kfext.state.running.checkpoint_requests import (
    BACK_OFF_SECONDS,
    CheckpointRequests,
    record_miss,
    why_not_saved,
)
from kfext.state.running.executor import SCAN_SECONDS, Executor, Steps
from kfext.state.running.move.migrate import (
    INTERVAL_SECONDS,
    MIGRATE,
    MIGRATED,
    REST_SECONDS,
    move_or_stay,
)
from kfext.state.running.move.record import MoveRecord, record_of
from kfext.state.running.operation import (
    ANSWER_SECONDS,
    STOP_SECONDS,
    MoveOperation,
    Phase,
    Readiness,
)
from kfext.state.running.policy import Condition, ConditionStatus
from kfext.state.running.proposal import Change, Chosen, Move, Proposal
from kfext.state.running.restarts import expected_restart, record_start, suspend_step
from kfext.state.running.running_job import RunningJob, all_running, may_change
from kfext.state.running.running_jobs import RunningJobs

MAX_SEARCHED = 16
"""One scan searches capacity for at most this many jobs; the others have their turn later."""
_FAILED_REST_SECONDS = 3600.0
"""A job does not move for this long after a move that did not reduce the number of its nodes."""


class MoveExecutor(Executor):
    """Moves jobs, one at a time."""

    change: ClassVar[type[Change]] = Move
    condition: ClassVar[Condition] = MIGRATED

    def __init__(self, running: RunningJobs, capacity: CapacitySearch) -> None:
        super().__init__(running)
        self._capacity = capacity
        self._requests = CheckpointRequests(running.progress)
        self._turns = RoundRobin(MAX_SEARCHED)
        self._last_move_at = -math.inf

    def follows(
        self, tracked: TrackedJob, chosen: dict[str, PolicyChoice], job: RunningJob | None
    ) -> bool:
        """Return whether a job opted in, or is being moved."""
        if tracked.job.finished or tracked.job.deleting or tracked.job.released:
            return False
        moving = job is not None and record_of(job).operation is not None
        return MIGRATE.name in chosen or moving or bool(tracked.state.move.source)

    def keeps_hold(self, uid: str) -> bool:
        """Return whether a move of a job is in progress."""
        job = self.jobs.get(uid)
        return job is not None and record_of(job).operation is not None

    def may_return(self, uid: str) -> bool:
        """Return whether a move of a job is in progress: it may end on the former nodes."""
        return self.keeps_hold(uid)

    def on_added(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow a job, and adopt a move by an earlier controller."""
        self.running.shown.hide(job.tracked, MIGRATED.type)
        pods, state = self._cluster.pods(job.uid), job.tracked.state.move
        job.replace_record(MoveRecord())
        job.restart.was_starting = not all_running(job.tracked, pods)
        elapsed = now.wall - past(state.at, now=now.wall)
        self._last_move_at = max(self._last_move_at, now.monotonic - elapsed)
        if state.source and elapsed < HOLD_SECONDS:
            target = self._capacity.new_places(job, now=now.wall) or {}
            proposal = Proposal(MIGRATE.name, job.uid, Move(), job.tracked.state.message)
            record_of(job).operation = operation = MoveOperation(proposal, source=state.source)
            operation.stopped = True
            operation.enter(Phase.SETTLING, at=now.monotonic - elapsed)
            self._hold(job, target, state.source)

    def on_removed(self, job: RunningJob, now: Moment) -> None:
        """End a move of the job."""
        if record_of(job).operation is not None:
            self._end(job, at=now.monotonic)

    def advance(self, now: Moment) -> Steps:
        """Advance the moves in progress."""
        steps: Steps = []
        for job in self.jobs.values():
            operation = record_of(job).operation
            if operation is None or job.tracked.busy:
                continue
            new_steps: list[Step] | None = None
            with self.running.failures.collect_errors_of(job.tracked):
                new_steps = list(self._advance(job, operation, now))
            if new_steps is None:
                job.tracked.end_step()
                self._end(job, at=now.monotonic, back_off=BACK_OFF_SECONDS)
            steps += [(job.tracked, step) for step in new_steps or ()]
        return steps

    def propose(self, now: Moment) -> list[Proposal]:
        """Return at most one move to carry out, and the moves of dry runs.

        The job with the most remaining time is first, because a move saves it most.
        """
        if not (self.scanning and self.jobs):
            return []
        why_none = self._why_none(now)
        free = [(self._remaining(job, now=now.wall) or 0.0, job) for job in self._free(now)]
        free.sort(key=lambda pair: (-pair[0], pair[1].uid))
        proposals: dict[Mode, list[Proposal]] = {Mode.ACT: [], Mode.OBSERVE: []}
        for job in self._turns.some([job for _, job in free]):
            with self.running.failures.collect_errors_of(job.tracked):
                decision = self._decide(job, why_none, now)
                record_of(job).stays = record_of(job).dry_run = None
                if isinstance(decision, Proposal):
                    proposals[job.mode(MIGRATE)].append(decision)
                else:
                    record_of(job).stays = decision
        early = now.monotonic - self._last_move_at < INTERVAL_SECONDS
        acting = [] if self.changing or early else proposals[Mode.ACT][:1]
        return [*acting, *proposals[Mode.OBSERVE]]

    def begin(self, chosen: Chosen, now: Moment) -> Steps:
        """Begin the chosen move, and update the condition of each job."""
        for proposal in chosen.act:
            job, self._last_move_at = self.jobs[proposal.job], now.monotonic
            record_of(job).operation = MoveOperation(proposal, Phase.SAVING, now.monotonic)
            record_of(job).refused = None
            self._progress.await_checkpoint(job.uid, awaited=True)
        for proposal in chosen.observe:
            record_of(self.jobs[proposal.job]).dry_run = proposal
        if self.scanning:
            for job in self.jobs.values():
                with self.running.failures.collect_errors_of(job.tracked):
                    self._show(job, now)
        return []

    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a write; `final`: why it was refused for good, or empty."""
        move, operation = record_of(job), record_of(job).operation
        if operation is None:
            return
        if operation.phase is not Phase.WRITING:
            if not complete:
                operation.request_number, move.asks_at = 0, now + SCAN_SECONDS  # ask again
        elif final:
            move.refused = Verdict(names.REASON_MOVE_REFUSED, final)
            self._end(job, at=now, back_off=BACK_OFF_SECONDS)
        else:  # without an answer the write may have arrived
            operation.enter(Phase.SETTLING, at=now)

    # --- the choice of a job ----------------------------------------------------------------------

    def _why_none(self, now: Moment) -> Verdict | None:
        """Return the reason to move no job now, or None. Waiting jobs come first."""
        limit = self._capacity.limit(now=now.wall)
        if limit is GrowthLimit.PAYING and not self._cluster.holds.holders():
            return None
        return Verdict(names.REASON_STAYS, "jobs that wait for capacity come first")

    @property
    def changing(self) -> bool:
        """Whether a move is in progress."""
        return any(record_of(job).operation is not None for job in self.jobs.values())

    def _free(self, now: Moment) -> Iterator[RunningJob]:
        """Yield the jobs that may be moved, and clear the outdated proposals of stopped jobs."""
        for job in self.jobs.values():
            with self.running.failures.collect_errors_of(job.tracked):
                if self._is_free(job, now):
                    yield job
                elif job.tracked.job.suspend:
                    record_of(job).stays = record_of(job).dry_run = None

    def _is_free(self, job: RunningJob, now: Moment) -> bool:
        tracked, move = job.tracked, record_of(job)
        pods = self._cluster.pods(job.uid)
        move.ineligible = why_not_moved(tracked.job, self.running.settings_of(tracked))
        record_start(job, self._progress, pods)
        return (
            job.mode(MIGRATE) is not Mode.OFF
            and move.ineligible is None
            and may_change(job, pods)
            and tracked.plan is not None
            and now.monotonic >= move.not_before
            and self._readiness(job, now=now.wall) is not Readiness.NEVER
        )

    def _decide(self, job: RunningJob, why: Verdict | None, now: Moment) -> Proposal | Verdict:
        """Return the move of a job, or the reason to stay; `why`: why no job moves now."""
        homes = set(self._source(job).values())
        last, message = job.tracked.state.move, f"its pods are on {words.nodes(len(homes))}"
        at = past(last.at, now=now.wall)
        if last.before:
            message += f", after a move from {words.nodes(last.before)} at {written_time(at)}"
        if len(homes) == 1:
            return Verdict(names.REASON_TOGETHER, message)
        if why is not None:
            return why
        rest = _FAILED_REST_SECONDS if 0 < last.before <= len(homes) else REST_SECONDS
        if now.wall - at < rest:
            lately = f"{message}; it was moved less than {rest:g} s ago"
            return Verdict(names.REASON_STAYS, lately)
        if refused := self._quota_refuses(job):
            return Verdict(names.REASON_STAYS, f"{message}; {refused}")
        return move_or_stay(
            job.uid,
            now=homes,
            better=(self._better(job, now=now.wall) or {}).values(),
            remaining=self._remaining(job, now=now.wall),
            cost=self._cost(job, now=now.wall),
            speed=MIGRATE.parameter(self.running.settings_of(job.tracked), "spreadSpeed"),
        )

    def _better(self, job: RunningJob, *, now: float) -> Assignment | None:
        """Return places on fewer nodes, or in fewer topology domains, than the present places."""
        better = self._capacity.new_places(job, now=now)
        if better is None:
            return None
        then, present_extent = (
            self._capacity.extent(job, places.values()) for places in (better, self._source(job))
        )
        return better if then < present_extent else None

    def _quota_refuses(self, job: RunningJob) -> str:
        """Return why a quota would refuse the pods of a job after its stop, or ""."""
        return self._capacity.quota_refuses(job, workers_of(job.tracked.job), recreated=True)

    def _cost(self, job: RunningJob, *, now: float) -> float:
        """Return the seconds that a move costs: the downtime and the lost work."""
        downtime = expected_restart(job) + SETTLE_SECONDS
        return downtime + self._requests.unsaved(job.uid, now=now)

    def _remaining(self, job: RunningJob, *, now: float) -> float | None:
        return self._queue.durations.shown_remaining(job.tracked.job, now=now)

    def _readiness(self, job: RunningJob, *, now: float) -> Readiness:
        return self._requests.readiness(job.uid, record_of(job).operation, interrupts=True, now=now)

    # --- the move ---------------------------------------------------------------------------------

    def _advance(self, job: RunningJob, operation: MoveOperation, now: Moment) -> Iterator[Step]:
        match operation.phase:
            case Phase.SAVING:
                yield from self._save(job, operation, now)
            case Phase.SETTLING:
                self._settle(job, operation, now)
            case Phase.WRITING | Phase.MEASURING | Phase.TRIAL:
                self._end(job, at=now.monotonic)  # its step was never written
            case _:
                assert_never(operation.phase)

    def _save(self, job: RunningJob, operation: MoveOperation, now: Moment) -> Iterator[Step]:
        """Wait for a checkpoint, then yield the write that stops the job."""
        tracked, move = job.tracked, record_of(job)
        ineligible = why_not_moved(tracked.job, self.running.settings_of(tracked))
        runs = not tracked.job.suspend and all_running(tracked, self._cluster.pods(job.uid))
        if job.mode(MIGRATE) is not Mode.ACT or ineligible or not runs:
            self._end(job, at=now.monotonic)
            return
        ready = self._readiness(job, now=now.wall)
        if self._requests.is_stale(job.uid, operation, now=now.wall):
            operation.request_number, ready = 0, Readiness.ASK  # its answer is too old by now
        if ready is Readiness.READY:
            yield from self._stop(job, operation, now)
        elif now.monotonic - operation.since >= ANSWER_SECONDS:
            record_miss(move, at=now.monotonic)
            self._end(job, at=now.monotonic)
        elif ready is Readiness.ASK and now.monotonic >= move.asks_at:
            step = self._requests.request(job.uid, operation)
            yield from [step] if step else []

    def _stop(self, job: RunningJob, operation: MoveOperation, now: Moment) -> Iterator[Step]:
        """Yield the write that stops a job for its move, if better nodes still fit."""
        tracked, source = job.tracked, self._source(job)
        refused = self._why_none(now) or self._quota_refuses(job)
        target = None if refused else self._better(job, now=now.wall)
        if target is None:
            lost = "the capacity for its move was used while it saved its work"
            record_of(job).refused = Verdict(names.REASON_STAYS, lost)
            self._end(job, at=now.monotonic, back_off=BACK_OFF_SECONDS)
            return
        why = operation.proposal.reason
        state = replace(
            tracked.state,
            reason=names.REASON_MOVING,
            message=why,
            move=MoveState(now.wall, len(set(source.values())), source),
        )
        self._progress.await_checkpoint(job.uid, awaited=False)
        operation.source = source
        self._hold(job, target, source)
        self._last_move_at, record_of(job).missed = now.monotonic, 0
        operation.enter(Phase.WRITING, at=now.monotonic)
        yield suspend_step(job, state, self._cluster.pods(job.uid), now=now.wall)

    def _settle(self, job: RunningJob, operation: MoveOperation, now: Moment) -> None:
        """Follow a stopped job until all its pods run."""
        training, pods = job.tracked.job, self._cluster.pods(job.uid)
        operation.stopped |= training.suspend
        by_others = training.started_by or (training.suspend and not training.held)
        longest = HOLD_SECONDS if operation.stopped else STOP_SECONDS
        if by_others or now.monotonic - operation.since >= longest:
            self._end(job, at=now.monotonic)
        elif operation.stopped and not training.suspend:
            if all_running(job.tracked, pods):
                job.restart.running_since = now.monotonic
                self._end(job, at=now.monotonic)
            else:  # its plan claims the new nodes
                self._hold(job, operation.source)

    def _hold(self, job: RunningJob, *assignments: Assignment) -> None:
        places = (Places(assignment, NO_SLOTS) for assignment in assignments)
        members = members_of(job.tracked.job)
        self._cluster.holds.hold(HoldKind.MOVE, job.uid, members, *places)

    def _end(self, job: RunningJob, *, at: float, back_off: float = 0.0) -> None:
        """End a move, complete or not; `back_off`: the least seconds before the next move."""
        self._progress.await_checkpoint(job.uid, awaited=False)
        self._cluster.holds.release(job.uid)
        record_of(job).operation = None
        record_of(job).not_before = max(record_of(job).not_before, at + back_off)

    def _source(self, job: RunningJob) -> Assignment:
        pods = present(job.tracked.job, self._cluster.pods(job.uid))
        return {key: pod.home for key, pod in pods.items() if pod.home}

    def _show(self, job: RunningJob, now: Moment) -> None:
        shown = None
        if job.tracked.phase is not None and job.mode(MIGRATE) is not Mode.OFF:
            ready = self._readiness(job, now=now.wall)
            verdict = next(_verdicts(job, ready, now=now.monotonic))
            shown = ConditionStatus(holds=job.tracked.state.move.at > 0, verdict=verdict)
        self.running.shown.show(job, MIGRATED.type, shown)


def _verdicts(job: RunningJob, ready: Readiness, *, now: float) -> Iterator[Verdict]:
    """Yield the verdicts on the moves of a job, the most important first; `now` is monotonic."""
    move = record_of(job)
    if move.operation is not None:
        saving, why = move.operation.phase is Phase.SAVING, move.operation.proposal.reason
        reason = names.REASON_AWAITS_CHECKPOINT if saving else names.REASON_MOVING
        yield Verdict(reason, f"it waits for a checkpoint: {why}" if saving else why)
    if move.ineligible is not None:
        yield move.ineligible
    yield from why_not_saved(move, ready, change="a move", now=now)
    if move.dry_run is not None:
        yield Verdict(names.REASON_WOULD_MIGRATE, f"it would be moved: {move.dry_run.reason}")
    yield move.stays or Verdict(names.REASON_TOO_EARLY, "its nodes have not been checked yet")
