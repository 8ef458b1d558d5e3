"""What the companion does to a job, as its TrainingPlan has it, for people to read."""

from collections.abc import Mapping
from typing import Any

from kfext.model.tolerant import mapping, sequence
from kfext.names import (
    REASON_CPU_MOVED,
    REASON_CPU_RESTORED,
    REASON_NOTHING_TO_MOVE,
    REASON_RESIZE_REFUSED,
    REASON_RESTS,
    REASON_STANDS_DOWN,
    REASON_TOO_EARLY,
    REASON_WOULD_MOVE,
    RESIZED,
)

_WORDS = {
    REASON_CPU_MOVED: "kfext changed CPU limits",
    REASON_WOULD_MOVE: "kfext would change CPU limits, and only shows it",
    REASON_NOTHING_TO_MOVE: "kfext changes no CPU limit",
    REASON_STANDS_DOWN: "kfext cannot change CPU limits for now",
    REASON_RESTS: "kfext leaves the CPU limits alone from now on",
    REASON_RESIZE_REFUSED: "a change of CPU limits was refused",
    REASON_TOO_EARLY: "it is too early to change CPU limits",
    REASON_CPU_RESTORED: "the CPU limits are those of the job again",
}


def in_words(condition: Mapping[str, str]) -> str:
    """Return the condition `Resized` as a sentence: what kfext does or would do, and why."""
    reason, resized = condition["reason"], condition["status"] == "True"
    # That a limit is still another one must not be hidden behind why nothing more is done.
    still = "; limits that it changed before stay" if resized and reason != REASON_CPU_MOVED else ""
    what = f"{_WORDS.get(reason, reason)}{still}"
    return ": ".join(filter(None, (what, condition["message"])))


def is_resized(status: Mapping[str, Any]) -> bool:
    """Return whether the status of a TrainingPlan shows other CPU limits than the user wrote."""
    conditions = map(mapping, sequence(status.get("conditions")))
    return any(one.get("type") == RESIZED and one.get("status") == "True" for one in conditions)
