"""Whether a job can be interrupted now without losing work."""

from enum import StrEnum

FRESH_SECONDS = 10.0
"""How long after a checkpoint a job may be interrupted."""
ANSWER_SECONDS = 120.0
"""How long an answer to a request for a checkpoint, or the next checkpoint, is awaited."""


class Readiness(StrEnum):
    """What has to happen before a job is interrupted."""

    READY = "ready"
    """Nothing: it loses nothing, or next to nothing."""
    ASK = "ask"
    """It listens to requests: ask it for a checkpoint, or wait for its answer."""
    AWAIT = "await"
    """It reports checkpoints but takes no requests: wait for the next one."""
    NEVER = "never"
    """It has shown no checkpoint, so it would lose all that it has done."""


def readiness(
    *, saved: float | None, answered: int | None, requested: int, now: float, interrupts: bool
) -> Readiness:
    """Return whether a job can be interrupted now. Times are seconds since the epoch.

    `saved`: when it last reported a checkpoint, None if it never did.
    `answered`: the number of the last request that it answered, None if it never did.
    `requested`: the number of the request that is to be answered, 0 if none was made.
    `interrupts`: whether the processes of the job lose work at all.
    """
    if not interrupts:
        return Readiness.READY
    if requested and answered is not None and answered >= requested:
        return Readiness.READY
    # A time that is far ahead is that of another clock, and says nothing of how old it is.
    if saved is not None and abs(now - saved) <= FRESH_SECONDS:
        return Readiness.READY
    if answered is not None:
        return Readiness.ASK
    return Readiness.NEVER if saved is None else Readiness.AWAIT
