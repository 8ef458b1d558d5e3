"""Whether a job can be interrupted now."""

from typing import Any

import pytest

from kfext.core.scale.readiness import FRESH_SECONDS, Readiness, readiness

NOW = 1000.0
CASES: dict[str, tuple[dict[str, Any], Readiness]] = {
    "it loses nothing anyway": ({"interrupts": False}, Readiness.READY),
    "no checkpoint was ever seen": ({}, Readiness.NEVER),
    "not even after it was asked": ({"requested": 1}, Readiness.NEVER),
    "a checkpoint is fresh": ({"saved": NOW - FRESH_SECONDS}, Readiness.READY),
    "the next one is awaited": ({"saved": NOW - FRESH_SECONDS - 0.1}, Readiness.AWAIT),
    "a checkpoint far in the future": ({"saved": NOW + 60.0}, Readiness.AWAIT),
    "one hardly in the future": ({"saved": NOW + 1.0}, Readiness.READY),
    "it listens and was not asked": ({"answered": 0}, Readiness.ASK),
    "it listens, whatever it prints": ({"answered": 3, "saved": NOW - 60}, Readiness.ASK),
    "it has not answered this request": ({"answered": 1, "requested": 2}, Readiness.ASK),
    "it has": ({"answered": 2, "requested": 2, "saved": NOW - 60}, Readiness.READY),
    "it has answered a later one": ({"answered": 3, "requested": 2}, Readiness.READY),
    "an answer to nobody says nothing": ({"answered": 3, "requested": 0}, Readiness.ASK),
}


@pytest.mark.parametrize(("more", "want"), CASES.values(), ids=CASES)
def test_the_readiness(more: dict[str, Any], want: Readiness) -> None:
    given = {"saved": None, "answered": None, "requested": 0, "now": NOW, "interrupts": True}
    assert readiness(**(given | more)) is want
