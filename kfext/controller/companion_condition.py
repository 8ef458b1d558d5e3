"""The conditions `Resized` and `Scaled`, as values and as the API server's JSON."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kfext.controller.conditions import Conditions
from kfext.core.companion.policy import Shown
from kfext.model.tolerant import text
from kfext.model.verdict import Verdict
from kfext.names import RESIZED, SCALED

TYPES = (RESIZED, SCALED)
_LONGEST_MESSAGE = 1024


def as_written(shown: Shown) -> Shown:
    """Return what can be written: what is read again is equal to it."""
    verdict = shown.verdict
    return replace(shown, verdict=Verdict(verdict.reason, verdict.message[:_LONGEST_MESSAGE]))


def encode_companion(
    uid: str, shown: Mapping[str, Shown], conditions: Conditions
) -> list[dict[str, Any]]:
    """Return the conditions as the API wants them; `conditions` remember when each last changed."""
    return [
        conditions.state(
            uid,
            type_,
            holds=one.holds,
            reason=one.verdict.reason,
            message=one.verdict.message,
        )
        for type_, one in sorted(shown.items())
    ]


def decode_companion(conditions: Mapping[Any, Mapping[str, Any]]) -> dict[str, Shown]:
    """Return by type what the conditions show, of those that are there. Total."""
    return {
        type_: Shown(
            holds=written.get("status") == "True",
            verdict=Verdict(text(written.get("reason")), text(written.get("message"))),
        )
        for type_ in TYPES
        if (written := conditions.get(type_)) is not None
    }


def same_but_words(shown: Mapping[str, Shown], written: Mapping[str, Shown]) -> bool:
    """Return whether two are alike but for the messages."""
    return _without_words(shown) == _without_words(written)


def _without_words(shown: Mapping[str, Shown]) -> dict[str, tuple[bool, str]]:
    return {type_: (one.holds, one.verdict.reason) for type_, one in shown.items()}
