"""The expected duration of a job, and whether it starts with fewer workers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.queue.duration import USUAL_SECONDS, expected_remaining, starts_short

REMAINING: dict[str, tuple[float | None, float, float]] = {
    "a job without a series": (None, 0.0, USUAL_SECONDS),
    "a job without a series that runs": (None, 100.0, USUAL_SECONDS - 100),
    "a job without a series that has run for long takes as long again": (None, 1000.0, 1000.0),
    "a job takes as long as its series": (200.0, 0.0, 200.0),
    "a job takes as long as its series, less its run time": (200.0, 150.0, 50.0),
    "a job has at least a fifth of its duration left": (200.0, 210.0, 40.0),
    "a late job takes as long again as it is late": (200.0, 500.0, 300.0),
}


@pytest.mark.parametrize(("series", "ran", "want"), REMAINING.values(), ids=REMAINING)
def test_the_remaining_time_of_a_job(series: float | None, ran: float, want: float) -> None:
    result = expected_remaining(series, usual=USUAL_SECONDS, ran=ran)
    assert result == pytest.approx(want)


STARTS: dict[str, tuple[int, float, float, bool]] = {
    "with all workers": (4, 0.0, 0.0, True),
    "with half, as waiting would cost more": (2, 100.0, 0.0, True),
    "not with half, as capacity is freed soon": (2, 99.0, 0.0, False),
    "not because of a wait within its own length": (2, 99.0, 100.0, False),
    "because of a wait beyond its own length": (2, 99.0, 101.0, True),
    "not with a quarter, however long it waits": (1, 1e6, 1e6, False),
    "with a quarter, as there is never capacity for more": (1, math.inf, 0.0, True),
}


@pytest.mark.parametrize(("workers", "wait", "waited", "want"), STARTS.values(), ids=STARTS)
def test_whether_a_job_starts_with_fewer_workers(
    workers: int, wait: float, waited: float, *, want: bool
) -> None:
    """The job requests four workers, and takes 100 s with all of them."""
    assert starts_short(workers, 4, length=100.0, wait=wait, waited=waited) is want


@given(st.integers(1, 8), st.integers(1, 8), st.floats(1, 1e6), st.floats(0, 1e6))
def test_more_workers_or_a_longer_wait_never_prevent_a_start(
    workers: int, requested: int, length: float, wait: float
) -> None:
    starts = starts_short(workers, requested, length=length, wait=wait, waited=0.0)
    assert starts_short(workers + 1, requested, length=length, wait=wait, waited=0.0) >= starts
    assert starts_short(workers, requested, length=length, wait=wait + 1, waited=0.0) >= starts
    assert starts_short(workers, requested, length=length, wait=wait, waited=1.0) >= starts
