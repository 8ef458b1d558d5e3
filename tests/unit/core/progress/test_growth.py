"""The progress of a window against the one before it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.growth import Windows, progress_of
from kfext.core.progress.vocabulary import Better

SECONDS = 30.0


def windows(*of: list[float], start: float = 3000.0) -> Windows:
    """One window for each list of values, which stand at equal distances."""
    made = Windows(SECONDS)
    for number, values in enumerate(of):
        for index, value in enumerate(values):
            at = start + SECONDS * (number + (index + 0.5) / len(values))
            made.add(at, value)
    return made


def progress(*of: list[float], better: Better = Better.LOWER) -> float | None:
    return progress_of(windows(*of), better, now=3000.0 + SECONDS * len(of) - 0.001)


HAND_COMPUTED = {
    "from 2.0 to 1.5, the first window's mean is 2.0": ([[2, 2], [1.5, 1.5]], 0.25),
    "the third window against the second, as a share of the first": (
        [[4, 4], [2, 2], [1, 1]],
        0.25,
    ),
    "a loss that rises is no progress": ([[1, 1], [2, 2]], 0.0),
    "a loss that stays is no progress": ([[1, 1], [1, 1]], 0.0),
    "never more than the whole": ([[1, 1], [-9, -9]], 1.0),
    "a gain within the noise is none": ([[1.0, 3.0], [0.9, 2.9]], 0.0),
    "a gain beyond it counts": ([[1.9, 2.1] * 5, [0.9, 1.1] * 5], 0.5),
}


@pytest.mark.parametrize(("of", "want"), HAND_COMPUTED.values(), ids=HAND_COMPUTED)
def test_F1_progress_as_computed_by_hand(of: list[list[float]], want: float) -> None:
    assert progress(*of) == pytest.approx(want)


def test_F1_what_is_better_higher_grows_upwards() -> None:
    assert progress([0.5, 0.5], [0.6, 0.6], better=Better.HIGHER) == pytest.approx(0.2)
    assert progress([0.6, 0.6], [0.5, 0.5], better=Better.HIGHER) == 0


UNKNOWN = {
    "no values": [],
    "one window": [[1.0, 1.0]],
    "silence after the first window": [[1.0, 1.0], []],
    "one value is too few": [[1.0, 1.0], [0.5]],
    "a first window of zero": [[0.0, 0.0], [0.0, 0.0]],
}


@pytest.mark.parametrize("of", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_no_end_of_progress(of: list[list[float]]) -> None:
    assert progress(*of) is None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=40))
def test_progress_is_a_share_whatever_a_job_prints(values: list[float]) -> None:
    half = len(values) // 2
    found = progress(values[:half], values[half:])
    assert found is None or (0 <= found <= 1 and not math.isnan(found))
