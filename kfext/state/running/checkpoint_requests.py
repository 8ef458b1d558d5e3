"""The handshake before a job is interrupted: ask for a checkpoint, wait, and ask again if it ages.

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

PAUSE_SECONDS = 300.0
"""A job is left alone for this long after a change that could not be carried out."""
_MOST_DOUBLINGS = 4
"""Each failure in a row doubles the pause, at most this many times."""


class CheckpointRequests:
    """Asks jobs for checkpoints, and reads their answers in their logs."""

    def __init__(self, progress: JobsProgress) -> None:
        self._progress = progress

    def readiness(
        self, uid: str, operation: SavingOperation | None, *, interrupts: bool, now: float
    ) -> Readiness:
        """Return whether a job can be interrupted now."""
        checkpoints = self._progress.followed(uid).checkpoints
        return readiness(
            saved=checkpoints.saved,
            outdated=None if operation is None else operation.outdated,
            answered=checkpoints.answered,
            requested=0 if operation is None else operation.requested,
            now=now,
            interrupts=interrupts,
        )

    def is_stale(self, uid: str, operation: SavingOperation, *, now: float) -> bool:
        """Return whether a job has trained on since it answered the operation's request."""
        checkpoints = self._progress.followed(uid).checkpoints
        answered = 0 < operation.requested <= (checkpoints.answered or 0)
        saved = checkpoints.saved
        return answered and saved is not None and now - saved > FRESH_SECONDS

    def request(self, uid: str, operation: SavingOperation) -> RequestCheckpoint | None:
        """Return the step that asks a job for a checkpoint, or None without a printing pod."""
        pod = self._progress.printer(uid)
        if pod is None or operation.requested:
            return None
        answered = self._progress.followed(uid).checkpoints.answered or 0
        operation.requested = max(pod.checkpoint_request, answered) + 1
        message = f"{operation.proposal.reason}; it is asked for a checkpoint first"
        return RequestCheckpoint(
            (pod,), operation.requested, Verdict(names.REASON_AWAITS_CHECKPOINT, message)
        )

    def unsaved(self, uid: str, *, now: float) -> float:
        """Return the seconds of work that a change costs; it waits for a fresh checkpoint."""
        saved = self._progress.followed(uid).checkpoints.saved
        return 0.0 if saved is None else min(max(0.0, now - saved), FRESH_SECONDS)


def miss(record: SavingRecord, *, at: float) -> None:
    """Record that a job saved no checkpoint in time: it is left alone, longer each time."""
    message = f"it saved no checkpoint within {ANSWER_SECONDS:g} s; nothing was changed"
    record.refused = Verdict(names.REASON_AWAITS_CHECKPOINT, message)
    record.not_before = at + lengthened(record.missed)
    record.missed += 1


def lengthened(failures: int) -> float:
    """Return the pause after a failure, in seconds; `failures`: the earlier failures in a row."""
    longest = PAUSE_SECONDS * 2**_MOST_DOUBLINGS
    return exponential_backoff(failures + 1, first=PAUSE_SECONDS, longest=longest)


def why_not_saved(
    record: SavingRecord, ready: Readiness, *, change: str, now: float
) -> Iterator[Verdict]:
    """Yield why a job that saves its work before a change is not changed."""
    if record.refused is not None and now < record.not_before:
        yield record.refused
    if ready is Readiness.NEVER:
        message = f"it has shown no checkpoint yet, so {change} would cost it work"
        yield Verdict(names.REASON_NO_CHECKPOINT, message)
