import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.timestamps import (
    LAST,
    SKEW_SECONDS,
    duration,
    past,
    seconds_until,
    timestamp,
    written_micro_time,
    written_time,
)


def test_times_are_written_as_the_api_writes_them() -> None:
    assert written_time(1.999999) == "1970-01-01T00:00:01Z"
    assert written_micro_time(1.5) == "1970-01-01T00:00:01.500000Z"
    assert written_micro_time(2) == "1970-01-01T00:00:02.000000Z"


@given(seconds=st.integers(0, LAST))
def test_a_written_time_reads_as_the_same_second(seconds: int) -> None:
    assert timestamp(written_time(seconds)) == timestamp(written_micro_time(seconds)) == seconds


@pytest.mark.parametrize("value", [None, "", "yesterday", 12, [], "9999-99-99T00:00:00Z"])
def test_a_malformed_time_counts_as_0(value: object) -> None:
    assert timestamp(value) == 0.0


DURATIONS: dict[str, float] = {
    "15s": 15,
    "1m30.5s": 90.5,
    "1h0m0s": 3600,
    "500ms": 0.5,
    "20.123456789s": 20.123456789,
    "0s": 0,
}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items(), ids=DURATIONS)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [None, "", 15, "15", "s", "-1s", "1s ", "1 s", "1d", "1s" * 8])
def test_a_malformed_duration_is_not_read(value: object) -> None:
    assert duration(value) is None


NOW = 1_000.0
PAST: dict[str, tuple[float, float]] = {
    "a time in the past": (NOW - 5, NOW - 5),
    "a time by a clock that is ahead": (NOW + 60, NOW),
    "a time beyond the tolerance of clocks": (NOW + 60.1, 0.0),
    "never": (0.0, 0.0),
}


@pytest.mark.parametrize(("at", "want"), PAST.values(), ids=PAST)
def test_a_stored_time_is_cut_to_the_present(at: float, want: float) -> None:
    assert past(at, now=NOW) == want


ENDS: dict[str, tuple[float, float]] = {
    "an end in the past": (NOW - 1, 0.0),
    "an end that is now": (NOW, 0.0),
    "an end in the future": (NOW + 5, 5.0),
    "an end that was rounded up to a whole second": (NOW + 10.5, 10.5),
    "an end that is later than possible, by a clock that was ahead": (NOW + 12, 0.0),
}


@pytest.mark.parametrize(("until", "want"), ENDS.values(), ids=ENDS)
def test_the_seconds_until_a_stored_end(until: float, want: float) -> None:
    assert seconds_until(until, now=NOW, longest=10.0) == want


@given(at=st.floats(0, 1e12), longest=st.floats(0, 1e6))
def test_no_stored_time_makes_a_wait_longer_than_possible(at: float, longest: float) -> None:
    assert past(at, now=NOW) <= NOW
    assert 0 <= seconds_until(at, now=NOW, longest=longest) <= longest + SKEW_SECONDS
