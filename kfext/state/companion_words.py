"""What to show of the CPU and the number of workers of a job that opted in."""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from kfext import names
from kfext.core import words
from kfext.core.companion.operation import Phase, Readiness, ScaleOperation
from kfext.core.companion.policy import ConditionStatus
from kfext.core.companion.proposal import Cause, Move, PodSizes, Proposal, Workers
from kfext.core.companion.resize import RESIZE
from kfext.core.companion.signals import JobSignal
from kfext.core.progress.followed import INTERVAL
from kfext.model.verdict import Verdict
from kfext.state.running_job import RunningJob, SavingRecord, has_kfext_size


def cpu_shown(
    job: RunningJob,
    signal: JobSignal,
    would: Proposal | None,
    *,
    decided: bool,
    paused: bool,
) -> ConditionStatus | None:
    """Return what to show of the CPU of a job, or None without opt-in.

    `would`: what a policy that may only observe would do. `decided`: whether a policy has just
    visited the job; otherwise, and while the job is resized, the last words stay.
    `paused`: whether nothing is tried for now, after a failure.
    """
    verdict = next(_of_cpu(job, signal, would, paused=paused), None)
    resized = _resized(job, signal)
    if verdict is None and job.cpu_policies:
        before = job.shown.get(names.RESIZED)
        if job.cpu.early and not resized:
            message = "too little is known of it yet to judge a change"
            verdict = Verdict(names.REASON_TOO_EARLY, message)
        elif before is None or (decided and not resized):
            verdict = _nothing_to_move(_stood_down(job, signal))
        else:
            verdict = before.verdict
    return None if verdict is None else ConditionStatus(resized, verdict)


def _resized(job: RunningJob, signal: JobSignal) -> bool:
    """Return whether pods have other CPU than the user's, or are about to have it."""
    operation = job.cpu.operation
    return signal.resized or (operation is not None and not operation.restores)


def _of_cpu(
    job: RunningJob, signal: JobSignal, would: Proposal | None, *, paused: bool
) -> Iterator[Verdict]:
    """Yield the verdicts that replace the last words, the most important first."""
    cpu, policies = job.cpu, signal.policies
    if paused and cpu.refused is not None:
        yield cpu.refused
    if cpu.operation is not None:
        restores = cpu.operation.restores
        reason = names.REASON_CPU_RESTORED if restores else names.REASON_CPU_MOVED
        yield Verdict(reason, cpu.operation.proposal.reason)
    if job.cpu_policies and cpu.unfit:
        yield Verdict(names.REASON_STANDS_DOWN, cpu.unfit)
    if would is not None:
        yield Verdict(names.REASON_WOULD_MOVE, _would(would))
    rests = job.tracked.state.cpu.rests
    if resting := [rests[name] for name in policies if name in rests]:
        yield Verdict(names.REASON_RESTS, _listed(resting))
    reasons = _stood_down(job, signal)
    if policies and len(reasons) == len(policies):
        yield Verdict(names.REASON_STANDS_DOWN, _listed(reasons.values()))
    if policies and signal.use is None:
        if cpu.unread:
            yield Verdict(names.REASON_STANDS_DOWN, cpu.unread)
        yield Verdict(names.REASON_TOO_EARLY, "the CPU use of its pods is not known yet")
    unknown = not signal.known and signal.growth is None
    if unknown and RESIZE.name in policies.keys() - reasons.keys():
        windows = f"two windows of {INTERVAL:g} s"
        message = f"its progress is not known yet: without a total that takes {windows}"
        yield Verdict(names.REASON_TOO_EARLY, message)


def _stood_down(job: RunningJob, signal: JobSignal) -> dict[str, str]:
    """Return why policies leave the job alone for now, by the name of the policy."""
    return {name: why for name in signal.policies if (why := job.cpu.stood_down.get(name))}


def _nothing_to_move(reasons: Mapping[str, str]) -> Verdict:
    """Return that nothing changes, and why some policies leave the job alone."""
    why = [f"{name} leaves it alone: {reason}" for name, reason in reasons.items()]
    message = "; ".join(["no change is worth a write", *why])
    return Verdict(names.REASON_NOTHING_TO_MOVE, message)


def _listed(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))


def size_shown(
    job: RunningJob, ready: Readiness, *, now: float, autoscaler: bool = False
) -> ConditionStatus:
    """Return what to show of the number of workers of a job.

    `now` is monotonic. `autoscaler`: whether the cluster has one.
    """
    verdict = next(_of_size(job, ready, now=now, autoscaler=autoscaler))
    return ConditionStatus(has_kfext_size(job.tracked), verdict)


def _of_size(
    job: RunningJob, ready: Readiness, *, now: float, autoscaler: bool
) -> Iterator[Verdict]:
    """Yield the verdicts on the size of a job, the most important first."""
    size, sizes = job.size, job.size.sizes
    if size.operation is not None and (under_way := _under_way(job, size.operation)):
        yield under_way
    if rests := job.tracked.state.scale.rests:
        yield Verdict(names.REASON_RESTS, rests)
    if size.unfit:
        yield Verdict(names.REASON_STANDS_DOWN, size.unfit)
    yield from _of_saving(size, ready, change="another number of workers", now=now)
    if size.would is not None:
        yield Verdict(names.REASON_WOULD_SCALE, _would(size.would))
    has = f"it has {sizes.now} of the {words.workers(sizes.asked)} that it asked for"
    if sizes.now < sizes.asked:
        others = size.hindered or "it gets the others once there is room"
        yield Verdict(names.REASON_SHRUNK, f"{has}; {others}")
    if sizes.now > sizes.asked:
        message = f"it asked for {words.workers(sizes.asked)} and has {sizes.now}"
        yield Verdict(names.REASON_GROWN, message)
    message = f"it has the {words.workers(sizes.now)} that it asked for"
    message += f"; it may have {sizes.least} to {sizes.most}"
    if autoscaler and sizes.now < sizes.most:
        message += ", but gets no more than it asked for while the cluster has an autoscaler"
    yield Verdict(names.REASON_AS_ASKED, message)


def _of_saving(
    record: SavingRecord, ready: Readiness, *, change: str, now: float
) -> Iterator[Verdict]:
    """Yield why a job that saves its work before a change is not changed."""
    if record.refused is not None and now < record.not_before:
        yield record.refused
    if ready is Readiness.NEVER:
        message = f"it has shown no checkpoint yet, so {change} would cost it work"
        yield Verdict(names.REASON_NO_CHECKPOINT, message)


def move_shown(job: RunningJob, ready: Readiness, *, now: float) -> ConditionStatus:
    """Return what to show of the moves of a job; `now` is monotonic."""
    moved = job.tracked.state.move.at > 0
    return ConditionStatus(moved, next(_of_move(job, ready, now=now)))


def _of_move(job: RunningJob, ready: Readiness, *, now: float) -> Iterator[Verdict]:
    """Yield the verdicts on the moves of a job, the most important first."""
    move = job.move
    if move.operation is not None:
        saving, why = move.operation.phase is Phase.SAVING, move.operation.proposal.reason
        reason = names.REASON_AWAITS_CHECKPOINT if saving else names.REASON_MOVING
        yield Verdict(reason, f"it waits for a checkpoint: {why}" if saving else why)
    if move.unfit is not None:
        yield move.unfit
    yield from _of_saving(move, ready, change="a move", now=now)
    if move.would is not None:
        yield Verdict(names.REASON_WOULD_MIGRATE, _would(move.would))
    yield move.stays or Verdict(names.REASON_TOO_EARLY, "its place has not been checked yet")


def _under_way(job: RunningJob, operation: ScaleOperation) -> Verdict | None:
    """Return how far an operation is; None on trial, when the job already has its new size."""
    now, then = words.workers(job.size.sizes.now), operation.change.workers
    why = operation.proposal.reason
    match operation.phase:
        case Phase.SAVING:
            message = f"it waits for a checkpoint to go from {now} to {then}: {why}"
            return Verdict(names.REASON_AWAITS_CHECKPOINT, message)
        case Phase.WRITING | Phase.SETTLING | Phase.MEASURING:
            return Verdict(names.REASON_RESCALING, f"it has {now}: {why}")
        case Phase.TRIAL:
            return None
        case _:
            assert_never(operation.phase)


def _would(proposal: Proposal) -> str:
    """Return what a proposal would do."""
    match proposal.change:
        case PodSizes():
            return proposal.reason
        case Move():
            return f"it would be moved: {proposal.reason}"
        case Workers(Cause.GUARD, number):
            return f"it would go down to {words.workers(number)}, for a waiting job"
        case Workers(_, number):
            return f"it would get {words.workers(number)}"
        case _:
            assert_never(proposal.change)
