"""The condition `Resized` of a TrainingPlan, as a value and as the API server's JSON."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kfext.controller.conditions import Conditions
from kfext.core.companion.shown import Shown
from kfext.model.tolerant import text
from kfext.model.verdict import Verdict
from kfext.names import RESIZED

_LONGEST_MESSAGE = 1024


def as_written(shown: Shown) -> Shown:
    """Return what can be written: what is read again is equal to it."""
    verdict = shown.verdict
    return replace(shown, verdict=Verdict(verdict.reason, verdict.message[:_LONGEST_MESSAGE]))


def encode_companion(uid: str, shown: Shown, conditions: Conditions) -> dict[str, Any]:
    """Return the condition as the API wants it; the conditions remember when it last changed."""
    return conditions.state(
        uid,
        RESIZED,
        holds=shown.resized,
        reason=shown.verdict.reason,
        message=shown.verdict.message,
    )


def decode_companion(conditions: Mapping[Any, Mapping[str, Any]]) -> Shown | None:
    """Return what the conditions by type show, None without the one of this type. Total."""
    written = conditions.get(RESIZED)
    if written is None:
        return None
    verdict = Verdict(text(written.get("reason")), text(written.get("message")))
    return Shown(resized=written.get("status") == "True", verdict=verdict)


def same_but_words(shown: Shown | None, written: Shown | None) -> bool:
    """Return whether two are alike but for the message."""
    return _without_words(shown) == _without_words(written)


def _without_words(shown: Shown | None) -> tuple[bool, str] | None:
    return None if shown is None else (shown.resized, shown.verdict.reason)
