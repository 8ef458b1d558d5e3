"""The speed of a job by its number of workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.scale.speed import Speed, fitted

SPEEDS = st.dictionaries(
    st.integers(-1, 10_000), st.floats(allow_nan=True, allow_infinity=True), max_size=20
)
TERM = st.one_of(st.just(0.0), st.floats(0.01, 100.0))


def seen(of: Speed, *sizes: int) -> dict[int, float]:
    return {size: of.at(size) for size in sizes}


EXACT: dict[str, Speed] = {
    "all work is divided": Speed(8.0, 0.0, 0.0),
    "some work is not": Speed(8.0, 1.0, 0.0),
    "each worker costs the others time": Speed(8.0, 0.0, 0.25),
    "all of these": Speed(8.0, 1.0, 0.25),
    "workers do nothing": Speed(0.0, 1.0, 0.0),
}


@pytest.mark.parametrize("of", EXACT.values(), ids=EXACT)
def test_the_speed_of_a_job_that_follows_the_form_is_found(of: Speed) -> None:
    found = fitted(seen(of, 1, 2, 4, 6))
    assert found is not None
    assert [found.at(size) for size in (3, 8, 12)] == pytest.approx(
        [of.at(size) for size in (3, 8, 12)], rel=1e-3
    )


@given(TERM, TERM, TERM, st.sets(st.integers(1, 64), min_size=3, max_size=16))
def test_the_sizes_seen_are_met(
    divided: float, constant: float, added: float, sizes: set[int]
) -> None:
    of = Speed(divided or 1.0, constant, added)
    found = fitted(seen(of, *sizes))
    assert found is not None
    for size in sizes:
        assert found.at(size) == pytest.approx(of.at(size), rel=1e-3)


def test_a_speed_that_falls_gives_no_negative_term() -> None:
    found = fitted({1: 1.0, 2: 1.6, 3: 1.5, 4: 1.2})
    assert found is not None
    assert min(found.divided, found.constant, found.added) >= 0
    assert found.at(5) < found.at(3)


def test_of_two_sizes_the_least_is_expected_of_growth() -> None:
    found = fitted({1: 1.0, 2: 1.5})
    divided_and_constant = Speed(2 / 3, 1 / 3, 0.0)
    assert found is not None
    assert found.at(2) == pytest.approx(1.5)
    assert found.at(4) < 0.9 * divided_and_constant.at(4)


NOTHING: dict[str, dict[int, float]] = {
    "no size": {},
    "one size": {4: 2.0},
    "one with a speed that can be": {4: 2.0, 5: 0.0, 6: float("nan"), 7: float("inf"), 8: -1.0},
    "one with workers": {4: 2.0, 0: 2.0},
}


@pytest.mark.parametrize("speeds", NOTHING.values(), ids=NOTHING)
def test_nothing_is_known_of_growth_with(speeds: dict[int, float]) -> None:
    assert fitted(speeds) is None


def test_the_largest_sizes_count_where_there_are_many() -> None:
    slow = dict.fromkeys(range(1, 100), 0.001)
    found = fitted(slow | seen(Speed(8.0, 1.0, 0.0), *range(100, 116)))
    assert found is not None
    assert found.at(120) == pytest.approx(Speed(8.0, 1.0, 0.0).at(120), rel=1e-3)


def test_without_workers_there_is_no_speed() -> None:
    assert Speed(1.0, 0.0, 0.0).at(0) == 0.0


@given(SPEEDS, st.integers(1, 20_000))
def test_whatever_was_measured_the_speed_is_a_positive_number(
    speeds: dict[int, float], workers: int
) -> None:
    found = fitted(speeds)
    assert found is None or 0.0 < found.at(workers) < float("inf")
