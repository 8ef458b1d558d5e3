"""The displayed progress: what counts as a change, and the remaining time."""

from dataclasses import replace

import pytest

from kfext import names
from kfext.core.progress.reported import GrowthState, Progress, Reported, looks_the_same
from kfext.model.verdict import Verdict

REPORTED = Reported(
    progress=Progress(
        "loss", value=0.512, step=1234, total=9000, rate=10.2, remaining=761.0, at=50.0
    ),
    growth=0.0312,
    state=GrowthState.NEW,
    cpu=1.52,
)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"at": 60.0}, True, id="a later report"),
        pytest.param({"step": 1244, "remaining": 760.0}, True, id="a few more steps"),
        pytest.param({"step": 1261}, False, id="steps that change the second digit"),
        pytest.param({"value": 0.514}, True, id="the third digit of the value"),
        pytest.param({"value": 0.498}, False, id="the second digit of the value"),
        pytest.param({"value": -0.512}, False, id="the sign of the value"),
        pytest.param({"value": None}, False, id="no value any more"),
        pytest.param({"value": 0.0}, False, id="a value of zero"),
        pytest.param({"metric": "accuracy"}, False, id="a different metric"),
        pytest.param({"total": None}, False, id="no total any more"),
    ],
)
def test_progress_is_compared_to_two_significant_digits(
    change: dict[str, object], same: bool
) -> None:
    changed = replace(REPORTED, progress=replace(REPORTED.progress, **change))  # type: ignore[arg-type]
    assert looks_the_same(REPORTED, changed) is same


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"state": GrowthState.WATCHING}, False, id="a different state"),
        pytest.param({"growth": 0.0314}, True, id="the third digit of the growth"),
        pytest.param({"growth": 0.0}, False, id="no growth"),
        pytest.param({"cpu": 1.48}, True, id="the third digit of the use"),
        pytest.param({"cpu": 1.6}, False, id="the second digit of the use"),
    ],
)
def test_a_new_state_or_digit_is_a_change(change: dict[str, object], same: bool) -> None:
    changed = replace(REPORTED, **change)  # type: ignore[arg-type]
    assert looks_the_same(REPORTED, changed) is same


REMAINING: dict[str, tuple[float, float, float | None]] = {
    "the full time, right after a report": (50.0, 0.0, 761.0),
    "less, some time after a report": (150.0, 0.0, 661.0),
    "nothing, at its expected end and for a while": (960.0, 0.0, 0.0),
    "unknown, if it prints nothing until long after its expected end": (1030.0, 0.0, None),
    "the full time, if it was stopped meanwhile": (1030.0, 1030.0, 761.0),
    "the full time, by a clock that is behind": (0.0, 0.0, 761.0),
}


@pytest.mark.parametrize(("now", "since", "want"), REMAINING.values(), ids=REMAINING)
def test_the_remaining_time_of_a_job(now: float, since: float, want: float | None) -> None:
    assert REPORTED.progress.remaining_at(now, since=since) == want


KNOWN: dict[str, tuple[Verdict | None, bool]] = {
    "while nothing is known yet": (None, True),
    "while its log cannot be read": (Verdict(names.REASON_LOG_UNAVAILABLE, "why"), True),
    "dropped when its log shows no progress": (
        Verdict(names.REASON_NOTHING_RECOGNISED, "why"),
        False,
    ),
}


@pytest.mark.parametrize(("known", "stays"), KNOWN.values(), ids=KNOWN)
def test_the_last_numbers_stay_shown(known: Verdict | None, *, stays: bool) -> None:
    result = Reported(known=known, cpu=0.5).after(REPORTED)
    assert result.known == known
    assert result.cpu == 0.5
    assert result.progress == (REPORTED.progress if stays else Progress())
