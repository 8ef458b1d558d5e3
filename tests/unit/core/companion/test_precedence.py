"""Which jobs on a node may take CPU of which other one."""

import pytest

from kfext.core.companion.budget import Budget
from kfext.core.companion.contest import Contest, contest
from kfext.core.companion.precedence import is_left_open, outlasted, served
from kfext.core.companion.signals import JobSignal
from kfext.core.progress.reported import GrowthState
from tests.unit.core.companion.jobs import job, signals

NEW, COMPLETING = GrowthState.NEW, GrowthState.COMPLETING


def grows(uid: str = "grows", *, left: float | None = None) -> JobSignal:
    return job(uid, state=NEW, growth=0.3, left=left)


def done(uid: str = "done", *, left: float | None = None, lent: float = 0.0) -> JobSignal:
    budget = Budget(used=100.0, lent=lent)
    return job(uid, state=COMPLETING, growth=0.0, left=left, budget=budget)


def on(*jobs: JobSignal, allocatable: int = 1400) -> Contest:
    return contest("n1", list(jobs), signals(*jobs, allocatable=allocatable))


SERVED: dict[str, tuple[JobSignal, JobSignal, bool]] = {
    "one that grows, by one that has converged": (grows(), done(), True),
    "not the other way round": (done(), grows(), False),
    "one that grows and ends first, by one that may go on for ever": (
        grows(left=9.0),
        done(),
        True,
    ),
    "not by one that may end before it": (grows(), done(left=9.0), False),
    "the one that ends first, whichever grows": (done(left=5.0), grows(left=9.0), True),
    "not one that ends later, although it grows": (grows(left=9.0), done(left=5.0), False),
}


@pytest.mark.parametrize(("other", "giving", "want"), SERVED.values(), ids=SERVED)
def test_which_job_is_served(other: JobSignal, giving: JobSignal, want: bool) -> None:
    assert (other in served(giving, on(other, giving))) is want


@pytest.mark.parametrize(
    ("jobs", "want"),
    [
        pytest.param([grows(left=9.0)], True, id="by the one that grows"),
        pytest.param([grows(left=9.0), grows("short", left=1.0)], False, id="not by all of them"),
        pytest.param([], False, id="none grows"),
    ],
)
def test_a_job_is_outlasted(jobs: list[JobSignal], want: bool) -> None:
    ends = done(left=5.0)
    assert outlasted(ends, on(ends, *jobs)) is want


OPEN: dict[str, tuple[JobSignal, int, bool]] = {
    "it fills the node, so it gets back all that it lends": (done(left=12.0), 1000, False),
    "it may not fill it, and lends to one that is not much shorter": (done(left=12.0), 1400, True),
    "it may not, and the other one is much shorter": (done(left=30.0), 1400, False),
    "it may not, and has lent enough": (done(left=30.0, lent=13.0), 1400, True),
}


@pytest.mark.parametrize(("lender", "size", "want"), OPEN.values(), ids=OPEN)
def test_a_job_that_would_lend_is_left_open(lender: JobSignal, size: int, want: bool) -> None:
    of = on(lender, done("first", left=10.0), allocatable=size)
    assert is_left_open(lender, of, share=0.1) is want


def test_where_growth_decides_a_job_that_is_outlasted_is_left_open() -> None:
    ends = done(left=5.0)
    assert is_left_open(ends, on(ends, grows()), share=0.1)
