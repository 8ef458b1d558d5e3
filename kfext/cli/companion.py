"""What the companion does to a job, as its TrainingPlan has it, for people to read."""

from collections.abc import Mapping
from typing import Any

from kfext.model.tolerant import mapping, sequence
from kfext.names import (
    REASON_AS_ASKED,
    REASON_AWAITS_CHECKPOINT,
    REASON_CPU_MOVED,
    REASON_CPU_RESTORED,
    REASON_GROWN,
    REASON_NO_CHECKPOINT,
    REASON_NOTHING_TO_MOVE,
    REASON_RESCALING,
    REASON_RESIZE_REFUSED,
    REASON_RESTS,
    REASON_SCALE_REFUSED,
    REASON_SHRUNK,
    REASON_STANDS_DOWN,
    REASON_TOO_EARLY,
    REASON_WOULD_MOVE,
    REASON_WOULD_SCALE,
    RESIZED,
    SCALED,
)

LINES = {RESIZED: "resize", SCALED: "scale"}
"""What `explain` calls a condition of the companion."""
_RESIZED = {
    REASON_CPU_MOVED: "kfext changed CPU limits",
    REASON_WOULD_MOVE: "kfext would change CPU limits, and only shows it",
    REASON_NOTHING_TO_MOVE: "kfext changes no CPU limit",
    REASON_STANDS_DOWN: "kfext cannot change CPU limits for now",
    REASON_RESTS: "kfext leaves the CPU limits alone from now on",
    REASON_RESIZE_REFUSED: "a change of CPU limits was refused",
    REASON_TOO_EARLY: "it is too early to change CPU limits",
    REASON_CPU_RESTORED: "the CPU limits are those of the job again",
}
_SCALED = {
    REASON_AS_ASKED: "the number of workers is as asked for",
    REASON_SHRUNK: "it has fewer workers than it asked for",
    REASON_GROWN: "kfext gave it workers",
    REASON_RESCALING: "kfext is changing the number of workers",
    REASON_AWAITS_CHECKPOINT: "another number of workers needs a checkpoint first",
    REASON_NO_CHECKPOINT: "kfext cannot change the number of workers for now",
    REASON_WOULD_SCALE: "kfext would change the number of workers, and only shows it",
    REASON_STANDS_DOWN: "kfext cannot change the number of workers for now",
    REASON_RESTS: "kfext leaves the number of workers alone from now on",
    REASON_SCALE_REFUSED: "another number of workers was refused",
}


def in_words(condition: Mapping[str, str]) -> str:
    """Return a condition of the companion as a sentence: what kfext does or would do, and why."""
    reason, holds = condition["reason"], condition["status"] == "True"
    resized = condition["type"] == RESIZED
    # That a limit is still another one must not be hidden behind why nothing more is done.
    hidden = resized and holds and reason != REASON_CPU_MOVED
    still = "; limits that it changed before stay" if hidden else ""
    what = f"{(_RESIZED if resized else _SCALED).get(reason, reason)}{still}"
    return ": ".join(filter(None, (what, condition["message"])))


def is_resized(status: Mapping[str, Any]) -> bool:
    """Return whether the status of a TrainingPlan shows other CPU limits than the user wrote."""
    conditions = map(mapping, sequence(status.get("conditions")))
    return any(one.get("type") == RESIZED and one.get("status") == "True" for one in conditions)
