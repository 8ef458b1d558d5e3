"""The order of the jobs in the queue."""

from collections.abc import Mapping
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.queue.order import LONGEST_HEAD_START, PATIENCE, queue_key
from tests.builders import JobBuilder, job

OLD = job(name="z", uid="1").worker(1).created(10).build()
FIRST = job(name="a", uid="2").worker(1).created(20).build()
SECOND = job(name="b", uid="3").worker(1).created(20).build()
SAME_NAME = job("TFJob", name="b", uid="4").worker(1).created(20).build()


def using(*templates: str, workers: int = 1) -> JobBuilder:
    """A job with templates that name priority classes."""
    master, worker = (
        {"priorityClassName": name} if name else {} for name in (*templates, "", "")[:2]
    )
    return job().master(spec=master).worker(workers, spec=worker)


def test_the_oldest_job_goes_first_and_equal_ages_go_by_name() -> None:
    want = [OLD, FIRST, SECOND, SAME_NAME]
    for jobs in permutations(want):
        assert sorted(jobs, key=lambda job: queue_key(job, 0, 300.0)) == want


def test_priority_comes_before_age() -> None:
    young = using("high").created(500).build()
    assert queue_key(young, 1000, 300.0) < queue_key(OLD, 0, 0.0)


LENGTHS: Mapping[str, tuple[float, float, float, bool]] = {
    "a short job goes before a long one": (50.0, 60.0, 300.0, True),
    "it came just less than 16 times the difference later": (3839.0, 60.0, 300.0, True),
    "it came more than 16 times the difference later": (3841.0, 60.0, 300.0, False),
    "it came over a week after a job of a day": (604_801.0, 0.0, 86_400.0, False),
    "it came less than a week after a job of a day": (604_799.0, 0.0, 86_400.0, True),
    "a job as long as the older job comes after it": (1.0, 300.0, 300.0, False),
}


@pytest.mark.parametrize(("later", "length", "older", "first"), LENGTHS.values(), ids=LENGTHS)
def test_a_shorter_job_goes_first_unless_it_came_much_later(
    later: float, length: float, older: float, first: bool
) -> None:
    young = job(name="young", uid="5").worker(1).created(10 + later).build()
    assert (queue_key(young, 0, length) < queue_key(OLD, 0, older)) is first


@given(st.integers(0, 10**6), st.floats(0, 1e5), st.floats(0, 1e5))
def test_no_job_waits_for_jobs_that_came_16_times_its_length_or_a_week_later(
    later: int, length: float, older: float
) -> None:
    young = job(name="young", uid="5").worker(1).created(10 + later).build()
    if later > min(PATIENCE * older, LONGEST_HEAD_START):
        assert queue_key(OLD, 0, older) < queue_key(young, 0, length)
