"""What of the companion is shown of a job, and in which words."""

from typing import Any

import pytest

from kfext.cli.companion import in_words, is_resized
from kfext.names import (
    REASON_CPU_MOVED,
    REASON_SHRUNK,
    REASON_STANDS_DOWN,
    REASON_WOULD_MOVE,
    REASONS_RESIZED,
    REASONS_SCALED,
    RESIZED,
    SCALED,
)

WORDS = {
    "what is done": (
        ("True", REASON_CPU_MOVED, "700m of 1400m"),
        "kfext changed CPU limits: 700m of 1400m",
    ),
    "what would be done": (
        ("False", REASON_WOULD_MOVE, "700m of 1400m"),
        "kfext would change CPU limits, and only shows it: 700m of 1400m",
    ),
    "why nothing is done": (
        ("False", REASON_STANDS_DOWN, "its pod is Guaranteed"),
        "kfext cannot change CPU limits for now: its pod is Guaranteed",
    ),
    "why nothing more is done": (
        ("True", REASON_STANDS_DOWN, "it has 65 pods"),
        "kfext cannot change CPU limits for now; limits that it changed before stay: "
        "it has 65 pods",
    ),
    "a reason of a later version": (("False", "Rebooted", "odd"), "Rebooted: odd"),
    "without a message": (("True", REASON_CPU_MOVED, ""), "kfext changed CPU limits"),
}


@pytest.mark.parametrize(("condition", "want"), WORDS.values(), ids=WORDS)
def test_the_condition_in_words(condition: tuple[str, str, str], want: str) -> None:
    found = dict(zip(("status", "reason", "message"), condition, strict=True))
    assert in_words({"type": RESIZED, **found}) == want


def test_the_size_of_a_job_in_words() -> None:
    condition = {"type": SCALED, "status": "True", "reason": REASON_SHRUNK, "message": "2 of 4"}
    assert in_words(condition) == "it has fewer workers than it asked for: 2 of 4"


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        *((RESIZED, reason) for reason in sorted(REASONS_RESIZED)),
        *((SCALED, reason) for reason in sorted(REASONS_SCALED)),
    ],
)
def test_every_reason_has_words(type_: str, reason: str) -> None:
    said = in_words({"type": type_, "status": "False", "reason": reason, "message": ""})
    assert reason not in said


STATUSES: dict[str, tuple[dict[str, Any], bool]] = {
    "resized": ({"conditions": [{"type": "Resized", "status": "True"}]}, True),
    "not resized": ({"conditions": [{"type": "Resized", "status": "False"}]}, False),
    "another condition": ({"conditions": [{"type": "Placed", "status": "True"}]}, False),
    "no conditions": ({}, False),
    "what is malformed": ({"conditions": [7, {"type": ["Resized"], "status": {}}]}, False),
}


@pytest.mark.parametrize(("status", "want"), STATUSES.values(), ids=STATUSES)
def test_whether_limits_are_changed(status: dict[str, Any], *, want: bool) -> None:
    assert is_resized(status) is want
