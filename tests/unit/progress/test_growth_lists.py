"""Growth efficiency, and the lists New, Watching and Completing (F1, F2, S1 of statements.md)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.course import GrowthList, growth_efficiency
from kfext.core.progress.reported import GrowthState

NEW, WATCHING, COMPLETING = GrowthState.NEW, GrowthState.WATCHING, GrowthState.COMPLETING
UNKNOWN = [None, math.nan, math.inf, -math.inf]

EFFICIENCIES = {
    "a tenth of the way on half of a node": (0.1, 0.5, 0.2),
    "a tenth of the way on a whole node": (0.1, 1.0, 0.1),
    "a share below the floor counts as the floor": (0.1, 0.01, 2.0),
    "no use at all counts as the floor": (0.1, 0.0, 2.0),
    "no progress": (0.0, 0.5, 0.0),
}


@pytest.mark.parametrize(("progress", "share", "want"), EFFICIENCIES.values(), ids=EFFICIENCIES)
def test_F1_growth_efficiency_as_computed_by_hand(
    progress: float, share: float, want: float
) -> None:
    assert growth_efficiency(progress, share) == pytest.approx(want)


SHARES: dict[str, tuple[list[float | None], float]] = {
    "before a share is known it is the whole node": ([None], 0.1),
    "a known share": ([0.5], 0.2),
    "the last known share holds while none is known": ([0.5, None, math.nan], 0.2),
    "a new share replaces it": ([0.5, None, 0.25], 0.4),
}


@pytest.mark.parametrize(("shares", "want"), SHARES.values(), ids=SHARES)
def test_F1_the_share_that_was_last_known_counts(shares: list[float | None], want: float) -> None:
    growth_list = GrowthList()
    for share in shares:
        growth_list.add_interval(0.1, share)
    assert growth_list.growth == pytest.approx(want)


def test_F1_a_share_counts_although_the_progress_of_its_interval_is_unknown() -> None:
    growth_list = GrowthList()
    growth_list.add_interval(None, 0.5)
    assert growth_list.growth is None
    growth_list.add_interval(0.1, None)
    assert growth_list.growth == pytest.approx(0.2)


SERIES: dict[str, tuple[list[float | None], GrowthState]] = {
    "nothing known yet": ([], NEW),
    "one interval with growth": ([0.1], NEW),
    "one interval below": ([0.1, 0.001], WATCHING),
    "two intervals below": ([0.1, 0.001, 0.001], COMPLETING),
    "it stays in Completing while below": ([0.1, *[0.001] * 9], COMPLETING),
    "exactly at the threshold it grows": ([1.0, 0.03], NEW),
    "just below the threshold it does not": ([1.0, 0.0299], WATCHING),
    "it returns from Watching to New at once": ([0.1, 0.001, 0.05], NEW),
    "it returns from Completing to New at once": ([0.1, 0.001, 0.001, 0.05], NEW),
    "back in New it moves one list at a time again": ([0.1, 0.001, 0.05, 0.001], WATCHING),
    "the threshold follows its best interval, not its last": ([0.01, 0.1, 0.05, 0.0029], WATCHING),
    "small progress is growth if the best was small": ([0.001, 0.001], NEW),
    "a job that has never grown": ([0.0, 0.0], COMPLETING),
    "an unknown interval in between": ([0.1, 0.001, None, None, 0.001], COMPLETING),
    "an unknown interval is not an interval below": ([0.1, None, None], NEW),
}


@pytest.mark.parametrize(("progress", "want"), SERIES.values(), ids=SERIES)
def test_F2_a_job_moves_between_the_lists(progress: list[float | None], want: GrowthState) -> None:
    growth_list = GrowthList()
    for value in progress:
        growth_list.add_interval(value, 1.0)
    assert growth_list.state is want


@given(
    st.lists(st.one_of(st.floats(0, 1), st.just(0.0), st.sampled_from(UNKNOWN)), max_size=40),
    st.floats(0.001, 1),
)
def test_S1_the_list_is_the_number_of_intervals_below_in_a_row(
    progress: list[float | None], alpha: float
) -> None:
    """The series is evaluated as a whole here; intervals without a value do not count."""
    growth_list = GrowthList(alpha)
    for value in progress:
        growth_list.add_interval(value, 1.0)
    known = [value for value in progress if value is not None and math.isfinite(value)]
    below = 0
    for index, value in enumerate(known):
        threshold = alpha * max(known[: index + 1])
        below = 0 if value > 0 and value >= threshold else below + 1
    assert growth_list.state is [NEW, WATCHING, COMPLETING][min(below, 2)]


@given(st.lists(st.floats(0, 1), max_size=20), st.sampled_from(UNKNOWN), st.floats(0, 1))
def test_S1_an_unknown_value_moves_a_job_to_no_other_list(
    progress: list[float], unknown: float | None, share: float
) -> None:
    growth_list = GrowthList()
    for value in progress:
        growth_list.add_interval(value, share)
    state, growth = growth_list.state, growth_list.growth
    growth_list.add_interval(unknown, share)
    assert (growth_list.state, growth_list.growth) == (state, growth)
