"""Checkpoint requests before a job is interrupted, repeated if the checkpoint gets too old.

Times are monotonic, except that a float `now` is in epoch seconds.
"""

from collections.abc import Iterator

from kfext import names
from kfext.core.lifecycle.steps import RequestCheckpoint
from kfext.model.backoff import exponential_backoff
from kfext.model.verdict import Verdict
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.operation import (
    ANSWER_SECONDS,
    FRESH_SECONDS,
    Readiness,
    SavingOperation,
    readiness,
)
from kfext.state.running.running_job import SavingRecord

BACK_OFF_SECONDS = 300.0
"""No change of a job begins for this long after its first failed change."""
_MAX_DOUBLINGS = 4
"""Consecutive failures double the back-off at most this many times."""


class CheckpointRequests:
    """Requests checkpoints from jobs, and reads the answers from their logs."""

    def __init__(self, progress: JobsProgress) -> None:
        self._progress = progress

    def readiness(
        self, uid: str, operation: SavingOperation | None, *, interrupts: bool, now: float
    ) -> Readiness:
        """Return how ready a job is to be interrupted; see `operation.readiness`."""
        checkpoints = self._progress.followed(uid).checkpoints
        return readiness(
            saved=checkpoints.saved,
            outdated=None if operation is None else operation.outdated,
            answered=checkpoints.answered,
            request_number=0 if operation is None else operation.request_number,
            now=now,
            interrupts=interrupts,
        )

    def is_stale(self, uid: str, operation: SavingOperation, *, now: float) -> bool:
        """Return whether the checkpoint that answered an operation's request is too old."""
        checkpoints = self._progress.followed(uid).checkpoints
        answered = 0 < operation.request_number <= (checkpoints.answered or 0)
        saved = checkpoints.saved
        return answered and saved is not None and now - saved > FRESH_SECONDS

    def request(self, uid: str, operation: SavingOperation) -> RequestCheckpoint | None:
        """Return the checkpoint request, or None after it was sent or without a rank 0."""
        pod = self._progress.printer(uid)
        if pod is None or operation.request_number:
            return None
        answered = self._progress.followed(uid).checkpoints.answered or 0
        operation.request_number = max(pod.checkpoint_request, answered) + 1
        message = f"{operation.proposal.reason}; a checkpoint is requested first"
        return RequestCheckpoint(
            (pod,), operation.request_number, Verdict(names.REASON_AWAITS_CHECKPOINT, message)
        )

    def unsaved(self, uid: str, *, now: float) -> float:
        """Return the seconds of work since the last checkpoint, at most FRESH_SECONDS."""
        saved = self._progress.followed(uid).checkpoints.saved
        return 0.0 if saved is None else min(max(0.0, now - saved), FRESH_SECONDS)


def record_miss(record: SavingRecord, *, at: float) -> None:
    """Record that a job saved no checkpoint in time, and begin a back-off of its changes."""
    message = f"it saved no checkpoint within {ANSWER_SECONDS:g} s; nothing was changed"
    record.refused = Verdict(names.REASON_AWAITS_CHECKPOINT, message)
    record.not_before = at + back_off_after(record.missed)
    record.missed += 1


def back_off_after(failures: int) -> float:
    """Return the back-off in seconds after a failure that follows `failures` others in a row."""
    longest = BACK_OFF_SECONDS * 2**_MAX_DOUBLINGS
    return exponential_backoff(failures + 1, first=BACK_OFF_SECONDS, longest=longest)


def why_not_saved(
    record: SavingRecord, ready: Readiness, *, change: str, now: float
) -> Iterator[Verdict]:
    """Yield the reasons against a change that needs a checkpoint; `change`: its name."""
    if record.refused is not None and now < record.not_before:
        yield record.refused
    if ready is Readiness.NEVER:
        message = f"its log shows no checkpoint yet, so {change} would lose work"
        yield Verdict(names.REASON_NO_CHECKPOINT, message)
