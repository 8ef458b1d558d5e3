"""What to show of the moves of a job that opted in."""

from collections.abc import Iterator

from kfext import names
from kfext.model.verdict import Verdict
from kfext.state.running.checkpoint_requests import why_not_saved
from kfext.state.running.move.record import record_of
from kfext.state.running.operation import Phase, Readiness
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.running_job import RunningJob


def move_shown(job: RunningJob, ready: Readiness, *, now: float) -> ConditionStatus:
    """Return what to show of the moves of a job; `now` is monotonic."""
    moved = job.tracked.state.move.at > 0
    return ConditionStatus(moved, next(_of_move(job, ready, now=now)))


def _of_move(job: RunningJob, ready: Readiness, *, now: float) -> Iterator[Verdict]:
    """Yield the verdicts on the moves of a job, the most important first."""
    move = record_of(job)
    if move.operation is not None:
        saving, why = move.operation.phase is Phase.SAVING, move.operation.proposal.reason
        reason = names.REASON_AWAITS_CHECKPOINT if saving else names.REASON_MOVING
        yield Verdict(reason, f"it waits for a checkpoint: {why}" if saving else why)
    if move.unfit is not None:
        yield move.unfit
    yield from why_not_saved(move, ready, change="a move", now=now)
    if move.dry_run is not None:
        yield Verdict(names.REASON_WOULD_MIGRATE, f"it would be moved: {move.dry_run.reason}")
    yield move.stays or Verdict(names.REASON_TOO_EARLY, "its place has not been checked yet")
