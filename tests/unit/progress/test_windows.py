"""Means over time windows, in memory that does not grow with the number of values."""

import math
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.course import SLOTS, Mean, Windows


def test_a_window_has_the_mean_of_its_values_and_the_standard_error() -> None:
    windows, values = Windows(30.0), [1.0, 2.0, 4.0, 8.0, 16.0]
    for number, value in enumerate(values):
        windows.add(30.0 + 5 * number, value)
    result = windows.mean(59.9)
    assert result is not None
    assert result.count == 5
    assert result.value == pytest.approx(fmean(values))
    assert result.error == pytest.approx(stdev(values) / math.sqrt(5))
    assert windows.mean(29.9) is None
    assert windows.first == pytest.approx(fmean(values))


def test_the_first_window_stays_the_first() -> None:
    windows = Windows(30.0)
    for at in range(0, 300, 10):
        windows.add(at, 10.0 - at / 30)
    assert windows.first == pytest.approx(fmean([10.0, 10.0 - 1 / 3, 10.0 - 2 / 3]))


def test_after_a_change_of_the_clock_only_the_first_window_stays() -> None:
    windows = Windows(30.0)
    windows.add(1000.0, 8.0)
    windows.forget()
    assert windows.mean(1000.0) is None
    windows.add(100.0, 2.0)
    assert (windows.mean(100.0), windows.first) == (Mean(2.0, 0.0, 1), 8.0)


@given(st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 1e31, -1e300, 1.0]), max_size=30))
def test_a_value_that_is_not_finite_or_huge_is_left_out(values: list[float]) -> None:
    windows = Windows(30.0)
    for value in values:
        windows.add(0.0, value)
    result = windows.mean(0.0)
    assert (result.count if result else 0) == values.count(1.0)


def test_the_memory_of_100_000_values_is_bounded() -> None:
    windows = Windows(30.0)
    for number in range(100_000):
        windows.add(number / 100, 1.0)
    assert len(windows._slots) <= 3 * SLOTS
