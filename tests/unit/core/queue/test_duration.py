"""How long a job is expected to take, and whether it starts with fewer workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.queue.duration import (
    USUAL_SECONDS,
    expected_remaining,
    short_start_in,
)

RESTS: dict[str, tuple[float | None, float, float]] = {
    "of an unknown job": (None, 0.0, USUAL_SECONDS),
    "such a job that runs": (None, 100.0, USUAL_SECONDS - 100),
    "such a job that has run for long takes as long again": (None, 1000.0, 1000.0),
    "what its series takes": (200.0, 0.0, 200.0),
    "less what it has run": (200.0, 150.0, 50.0),
    "it is never as good as over": (200.0, 210.0, 40.0),
    "it is late for as long again": (200.0, 500.0, 300.0),
}


@pytest.mark.parametrize(("usual", "ran", "want"), RESTS.values(), ids=RESTS)
def test_the_rest_of_a_job(usual: float | None, ran: float, want: float) -> None:
    assert expected_remaining(usual, ran=ran) == pytest.approx(want)


STARTS: dict[str, tuple[int, float, float, float]] = {
    "with all workers": (4, 0.0, 0.0, 0.0),
    "with half, as it would wait longer than that costs": (2, 100.0, 0.0, 0.0),
    "later with half, as there is room soon": (2, 99.0, 0.0, 1.0),
    "with a quarter, as it is unknown when there is room": (1, float("inf"), 0.0, 0.0),
    "with half, as it waited for as long as that costs": (2, 0.0, 100.0, 0.0),
}


@pytest.mark.parametrize(("workers", "wait", "waited", "want"), STARTS.values(), ids=STARTS)
def test_a_job_starts(workers: int, wait: float, waited: float, want: float) -> None:
    """It asked for four workers. It takes 100 s with all of them."""
    assert short_start_in(workers, 4, length=100.0, wait=wait, waited=waited) == want


@given(st.integers(1, 8), st.integers(1, 8), st.floats(1, 1e6), st.floats(0, 1e6))
def test_more_workers_or_a_longer_wait_never_speak_against_a_start(
    workers: int, asked: int, length: float, wait: float
) -> None:
    within = short_start_in(workers, asked, length=length, wait=wait, waited=0.0)
    assert short_start_in(workers + 1, asked, length=length, wait=wait, waited=0.0) <= within
    assert short_start_in(workers, asked, length=length, wait=wait + 1, waited=0.0) <= within
    assert short_start_in(workers, asked, length=length, wait=wait, waited=within + 1) == 0.0
