"""The condition `Stopped` of a job that opted in: its status, reason and message."""

from collections.abc import Iterator

from kfext import names
from kfext.core.progress.checkpoints import Checkpoints
from kfext.core.words import clock
from kfext.model.moment import Moment
from kfext.model.policy import Mode
from kfext.model.timestamps import past, written_time
from kfext.model.verdict import Verdict
from kfext.state.running.checkpoint_requests import why_not_saved
from kfext.state.running.operation import Phase, Readiness
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.running_job import RunningJob
from kfext.state.running.stop.preempt import PREEMPT
from kfext.state.running.stop.record import record_of
from kfext.state.running.stop.victims import rests_until

_HIGHER = "a job of higher priority"


def stopped_for(checkpoints: Checkpoints) -> str:
    """Return the message of a preempted job."""
    return f"stopped for {_HIGHER}; {continues(checkpoints)}"


def continues(checkpoints: Checkpoints) -> str:
    """Return a clause that says at what step a stopped job continues."""
    if checkpoints.saved is None:
        return "it starts from the beginning, as it has shown no checkpoint"
    step = checkpoints.step
    return f"it continues from {'its last checkpoint' if step is None else f'step {step}'}"


def stop_shown(job: RunningJob, ready: Readiness, now: Moment) -> ConditionStatus:
    """Return the status of the condition of a job; `ready`: how ready it is to be stopped."""
    return ConditionStatus(job.tracked.stopped, next(_verdicts(job, ready, now)))


def _verdicts(job: RunningJob, ready: Readiness, now: Moment) -> Iterator[Verdict]:
    """Yield what can be said of the stops of a job, the most important verdict first."""
    record, state = record_of(job), job.tracked.state
    if record.operation is not None and record.operation.phase is Phase.SAVING:
        message = f"it saves its work, and then stops for {_HIGHER}"
        yield Verdict(names.REASON_AWAITS_CHECKPOINT, message)
    if job.tracked.stopped and not state.stop.waiting:
        stalled = state.reason == names.REASON_STALLED
        reason = names.REASON_STALLED if stalled else names.REASON_DRAINED
        yield Verdict(reason, state.message or "its node was drained")
    if record.operation is not None or state.stop.waiting:
        yield Verdict(names.REASON_STOPPED, state.message or f"stopped for {_HIGHER}")
    if record.ineligible is not None:
        yield record.ineligible
    yield from why_not_saved(record, ready, change="a stop", now=now.monotonic)
    if record.dry_run is not None:
        yield Verdict(names.REASON_WOULD_STOP, f"it would stop now: {record.dry_run.reason}")
    if (until := rests_until(state.stop, now=now.wall)) > now.wall:
        times = "once" if state.stop.count == 1 else f"{state.stop.count} times"
        message = f"it was stopped {times} for {_HIGHER}, last at"
        at = written_time(past(state.stop.at, now=now.wall))
        rest = f"it is not stopped again before {clock(until)}"
        yield Verdict(names.REASON_RESTS, f"{message} {at}; {rest}")
    message = f"it runs, and may be stopped for {_HIGHER}"
    if job.mode(PREEMPT) is Mode.OBSERVE:
        message = "it runs, and its TrainingPolicy only lets kfext show when it would stop"
    yield Verdict(names.REASON_MAY_STOP, message)
