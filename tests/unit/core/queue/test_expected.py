"""The expected start of a job: its range, which changes are shown, and the wording."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.queue.expected import (
    Accuracy,
    ExpectedStart,
    Scores,
    column,
    decode_expected,
    encode_expected,
    lead,
    rounded,
    sentence,
)

NOW = 1_800_000_000.0
HOUR = 3600.0
waits = st.floats(0, 1e6)
SOON = ExpectedStart(NOW + 600, NOW + 480, NOW + 900)


def scored(*ratios: tuple[float, float]) -> Scores:
    """Scores of jobs with an expected wait of 1,000 s.

    `ratios`: the actual wait in multiples of the expected wait, and of the wait behind new jobs.
    """
    scores = Scores()
    for actual, behind in ratios:
        scores.add(1000 * actual, expected=1000, behind=1000 * actual / behind)
    return scores


def test_before_twenty_starts_a_rule_sets_the_range() -> None:
    assert Scores().range(400, behind=400) == (0.75 * 400 - 30, 1.5 * 400 + 30)
    assert Scores().range(400, behind=1000) == (0.75 * 400 - 30, 1.2 * 1000 + 30)
    assert scored(*[(1.0, 1.0)] * 19).range(1000, behind=1000) == (720, 1530)


def test_after_twenty_starts_their_ratios_set_the_range() -> None:
    exact = scored(*[(1.0, 1.0)] * 20)
    assert exact.range(1000, behind=1250) == pytest.approx((1000, 1250))
    early = scored(*[(0.5, 1.0)] * 2, *[(1.0, 1.0)] * 18)
    assert early.range(985, behind=985)[0] == pytest.approx(500, rel=0.02)
    late = scored(*[(2.0, 2.0)] * 2, *[(1.0, 1.0)] * 18)
    assert late.range(985, behind=985)[1] == pytest.approx(1985, rel=0.02)


def test_only_the_last_400_starts_count() -> None:
    scores = scored(*[(0.1, 0.1)] * 400, *[(1.0, 1.0)] * 400)
    assert scores.range(1000, behind=1000) == pytest.approx((1000, 1000))


def test_late_starts_after_short_waits_do_not_widen_the_ranges_of_long_waits() -> None:
    scores = scored(*[(1.0, 1.0)] * 38)
    for _ in range(3):
        scores.add(3 * HOUR, expected=10, behind=10)
    assert scores.range(1000, behind=1000) == pytest.approx((1000, 1000))
    for _ in range(17):
        scores.add(10, expected=10, behind=10)
    assert scores.range(10, behind=10)[1] == pytest.approx(3 * HOUR)


@given(
    ratios=st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), max_size=60),
    expected=waits,
    more=waits,
)
def test_a_range_contains_the_expected_wait(
    ratios: list[tuple[float, float]], expected: float, more: float
) -> None:
    low, high = scored(*ratios).range(expected, behind=expected + more)
    assert 0 <= low <= expected <= high


@given(
    ratios=st.lists(st.floats(0.2, 5), min_size=20, max_size=60),
    wider=st.floats(1, 3),
    expected=waits,
)
def test_starts_with_a_larger_error_never_make_a_range_narrower(
    ratios: list[float], wider: float, expected: float
) -> None:
    """Each early start is even earlier, and each late start even later."""
    worse = [ratio * wider if ratio >= 1 else ratio / wider for ratio in ratios]
    low, high = scored(*((ratio, ratio) for ratio in ratios)).range(expected, behind=expected)
    wide = scored(*((ratio, ratio) for ratio in worse)).range(expected, behind=expected)
    assert wide[0] <= low + 1e-6
    assert wide[1] >= high - 1e-6


@given(start=waits, before=waits, after=waits)
def test_rounding_keeps_the_order_and_makes_no_range_narrower(
    start: float, before: float, after: float
) -> None:
    exact = ExpectedStart(NOW + start, NOW + max(0.0, start - before), NOW + start + after)
    shown = rounded(exact, now=NOW)
    assert shown.earliest is not None
    assert shown.time is not None
    assert shown.latest is not None
    assert shown.earliest <= shown.time <= shown.latest
    assert exact.earliest is not None
    assert exact.latest is not None
    assert shown.earliest <= exact.earliest
    assert shown.latest >= exact.latest
    assert decode_expected(encode_expected(shown, now=NOW)) == shown


UNITS = {1800.0: 60, 2 * HOUR: 300, 6 * HOUR: 900, 20 * HOUR: 3600}


@pytest.mark.parametrize(("wait", "unit"), UNITS.items())
def test_the_longer_the_wait_the_coarser_the_range(wait: float, unit: float) -> None:
    at = NOW + wait - 1
    shown = rounded(ExpectedStart(at, at, at), now=NOW)
    assert shown.latest is not None
    assert shown.earliest is not None
    assert shown.latest - shown.earliest == unit
    assert shown.latest % unit == 0


NEWS: dict[str, tuple[ExpectedStart, ExpectedStart, bool]] = {
    "the same": (SOON, SOON, False),
    "a minute later, of a wait of ten": (replace(SOON, latest=NOW + 960), SOON, False),
    "over a fifth of the remaining wait later": (replace(SOON, latest=NOW + 1021), SOON, True),
    "over a fifth of the remaining wait earlier": (replace(SOON, earliest=NOW + 359), SOON, True),
    "a fifth of a day is no news": (
        ExpectedStart(NOW + 10 * HOUR, NOW + 8 * HOUR, NOW + 13 * HOUR),
        ExpectedStart(NOW + 10 * HOUR, NOW + 8 * HOUR, NOW + 12 * HOUR),
        False,
    ),
    "no longer known": (ExpectedStart(unknown="why"), SOON, True),
    "newly known": (SOON, ExpectedStart(unknown="why"), True),
    "unknown as before": (ExpectedStart(unknown="why"), ExpectedStart(unknown="why"), False),
    "unknown for another reason": (ExpectedStart(unknown="a"), ExpectedStart(unknown="b"), True),
    "the same, but after other jobs": (replace(SOON, after="a"), SOON, False),
    "not before a time": (
        ExpectedStart(earliest=NOW + 600, unknown="a"),
        ExpectedStart(unknown="a"),
        True,
    ),
}


@pytest.mark.parametrize(("new", "shown", "news"), NEWS.values(), ids=NEWS)
def test_which_change_is_shown(new: ExpectedStart, shown: ExpectedStart, news: bool) -> None:
    assert new.is_news(shown, now=NOW) is news


@pytest.mark.parametrize(
    ("at", "want"),
    [
        (479, Accuracy.EARLIER),
        (480, Accuracy.WITHIN),
        (900, Accuracy.WITHIN),
        (901, Accuracy.LATER),
    ],
)
def test_whether_a_start_is_within_its_range(at: float, want: Accuracy) -> None:
    assert SOON.accuracy(NOW + at) is want


def test_the_class_of_a_wait() -> None:
    assert [lead(seconds) for seconds in (0, 120, 600, 3600)] == ["0-2m", "2-10m", "10-60m", "60m+"]


WORDS: dict[str, tuple[ExpectedStart, str, str]] = {
    "a range": (
        SOON,
        "08:08-08:15 UTC",
        "it should start between 08:08 and 08:15 UTC, most likely at 08:10",
    ),
    "with the jobs that end before": (
        replace(SOON, after="PyTorchJob team/a"),
        "08:08-08:15 UTC",
        "it should start between 08:08 and 08:15 UTC, most likely at 08:10; "
        "after the end of PyTorchJob team/a",
    ),
    "a range that ends tomorrow": (
        ExpectedStart(NOW + 11 * HOUR, NOW + 10 * HOUR, NOW + 20 * HOUR),
        "18:00-Jan 16 04:00 UTC",
        "it should start between 18:00 and Jan 16 04:00 UTC, most likely at 19:00",
    ),
    "a range that is over": (
        ExpectedStart(NOW - 600, NOW - 720, NOW - 300, after="PyTorchJob team/a"),
        "07:48-07:55 UTC",
        "it should have started by 07:55 UTC, and is late; after the end of PyTorchJob team/a",
    ),
    "unknown": (ExpectedStart(unknown="why"), "unknown", "not known: why"),
    "unknown, but not before": (
        ExpectedStart(earliest=NOW + HOUR, unknown="why"),
        "unknown",
        "not before 09:00 UTC, else not known: why",
    ),
}


@pytest.mark.parametrize(("expected", "short", "long"), WORDS.values(), ids=WORDS)
def test_the_wording_of_an_expected_start(expected: ExpectedStart, short: str, long: str) -> None:
    assert column(expected, now=NOW) == short
    assert sentence(expected, now=NOW) == long
    assert decode_expected(encode_expected(expected, now=NOW)) == expected


def test_a_status_without_the_field_has_no_expected_start() -> None:
    assert encode_expected(None, now=NOW) is None
    assert decode_expected(None) is None
    assert decode_expected({"time": 3, "unknown": [], "earliest": "soon"}) == ExpectedStart()
