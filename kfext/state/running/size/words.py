"""The condition `Scaled` of a job that opted in: its reason and message."""

from collections.abc import Iterator
from typing import assert_never

from kfext import names
from kfext.core import words
from kfext.model.verdict import Verdict
from kfext.state.running.checkpoint_requests import why_not_saved
from kfext.state.running.operation import Phase, Readiness, ScaleOperation
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.proposal import Cause, Workers
from kfext.state.running.running_job import RunningJob, has_kfext_size
from kfext.state.running.size.record import record_of


def size_shown(
    job: RunningJob, ready: Readiness, *, now: float, autoscaler: bool = False
) -> ConditionStatus:
    """Return the status of the condition of a job; `ready`: how ready it is to be interrupted.

    `now` is monotonic. `autoscaler`: whether the cluster has an autoscaler.
    """
    verdict = next(_verdicts(job, ready, now=now, autoscaler=autoscaler))
    return ConditionStatus(has_kfext_size(job.tracked), verdict)


def _verdicts(
    job: RunningJob, ready: Readiness, *, now: float, autoscaler: bool
) -> Iterator[Verdict]:
    """Yield what can be said of the size of a job, the most important verdict first."""
    size, sizes = record_of(job), record_of(job).sizes
    if size.operation is not None and (progress := _operation_verdict(job, size.operation)):
        yield progress
    if disabled := job.tracked.state.scale.disabled:
        yield Verdict(names.REASON_RESTS, disabled)
    if size.ineligible:
        yield Verdict(names.REASON_STANDS_DOWN, size.ineligible)
    yield from why_not_saved(size, ready, change="another number of workers", now=now)
    if size.dry_run is not None and isinstance(dry_run := size.dry_run.change, Workers):
        number = words.workers(dry_run.workers)
        message = f"it would be scaled to {number}"
        if dry_run.cause is Cause.RESCUE:
            message = f"it would be scaled down to {number} for a waiting job"
        yield Verdict(names.REASON_WOULD_SCALE, message)
    if sizes.now < sizes.requested:
        has = f"it has {sizes.now} of the {words.workers(sizes.requested)} that it requested"
        why = size.quota_refusal or "it regains the others once capacity is free"
        yield Verdict(names.REASON_SHRUNK, f"{has}; {why}")
    if sizes.now > sizes.requested:
        message = f"it requested {words.workers(sizes.requested)} and has {sizes.now}"
        yield Verdict(names.REASON_GROWN, message)
    message = f"it has the {words.workers(sizes.now)} that it requested"
    message += f"; it may have {sizes.least} to {sizes.most}"
    if autoscaler and sizes.now < sizes.most:
        message += ", and more than requested only on nodes that the autoscaler keeps anyway"
    yield Verdict(names.REASON_AS_ASKED, message)


def _operation_verdict(job: RunningJob, operation: ScaleOperation) -> Verdict | None:
    """Return what an operation waits for; None during its trial, when the job has its new size."""
    now, then = words.workers(record_of(job).sizes.now), operation.change.workers
    why = operation.proposal.reason
    match operation.phase:
        case Phase.SAVING:
            message = f"it waits for a checkpoint, to be scaled from {now} to {then}: {why}"
            return Verdict(names.REASON_AWAITS_CHECKPOINT, message)
        case Phase.WRITING | Phase.SETTLING | Phase.MEASURING:
            return Verdict(names.REASON_RESCALING, f"it has {now}: {why}")
        case Phase.TRIAL:
            return None
        case _:
            assert_never(operation.phase)
