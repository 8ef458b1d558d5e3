"""When a job has been silent for too long."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.stall import REPORT, RESTART, Habits, Start, odd_pod

MINUTE, HOUR = 60.0, 3600.0
NEW = Habits()


def start(
    *, steps: float | None = 0.0, first: float = 0.0, longest: float = 0.0, now: float = 3 * HOUR
) -> Start:
    return Start(-first, read=now, moved=now, alive=True, stepped=steps, longest=longest)


def test_a_log_without_counters_may_be_silent_forever_unless_its_series_is_known() -> None:
    start = Start(0.0, read=9 * HOUR, moved=0.0)
    limits = [start.limit(REPORT, known, saving=False) for known in (NEW, Habits(9.0, 60))]
    assert limits == [math.inf, 15 * MINUTE]


LIMITS: dict[str, tuple[Start, Habits, bool, float, float]] = {
    # the start, its series, whether it saves -> the minutes until the report and the restart
    "before the first step of a new series": (start(steps=None), NEW, False, 120, math.inf),
    "a log of 50 minutes between its counters that shows no step": (
        start(steps=None, longest=50 * MINUTE), NEW, False, 150, math.inf,
    ),
    "before the first step of a series that took an hour": (
        start(steps=None), Habits(5.0, HOUR), False, 180, 360,
    ),
    "before the first step of a series that is quick": (
        start(steps=None), Habits(5.0, 60.0), False, 15, 30,
    ),
    "in the first two hours of a new series": (start(longest=10.0, now=HOUR), NEW, False, 30, 120),
    "after the first two hours": (start(longest=10.0), NEW, False, 15, 30),
    "in the first two hours of a known series": (
        start(longest=10.0, now=HOUR), Habits(20.0, 5.0, 31 * MINUTE), False, 15, 30,
    ),
    "in the first two hours of a series with short jobs": (
        start(longest=10.0, now=HOUR), Habits(20.0, 5.0, 30 * MINUTE), False, 30, 120,
    ),
    "it was silent for ten minutes before": (start(longest=10 * MINUTE), NEW, False, 30, 60),
    "its first step took 50 minutes": (start(first=50 * MINUTE), NEW, False, 60, 120),
    "the first step of its series took 50 minutes": (
        start(longest=5.0), Habits(5.0, 50 * MINUTE), False, 60, 120,
    ),
    "its series was silent for an hour": (start(longest=5.0), Habits(HOUR, 5.0), False, 180, 360),
    "while a save is announced": (start(longest=10.0), NEW, True, 60, 120),
    "a save is announced before the first step": (start(steps=None), NEW, True, 120, math.inf),
}  # fmt: skip


@pytest.mark.parametrize(
    ("job", "known", "saving", "report", "restart"), LIMITS.values(), ids=LIMITS
)
def test_how_long_a_job_may_be_silent(
    job: Start, known: Habits, saving: bool, report: float, restart: float
) -> None:
    limits = [job.limit(rule, known, saving=saving) for rule in (REPORT, RESTART)]
    assert limits == [report * MINUTE, restart * MINUTE]


@given(longest=st.floats(0, HOUR), known=st.floats(0, HOUR), now=st.floats(0, 9 * HOUR))
def test_a_job_is_shown_as_stalled_before_it_may_be_restarted(
    longest: float, known: float, now: float
) -> None:
    for steps in (None, 0.0):
        job = start(steps=steps, longest=longest, now=now)
        limits = [job.limit(rule, Habits(known, known), saving=False) for rule in (REPORT, RESTART)]
        assert limits == sorted(limits)


def test_silences_are_measured_from_the_first_step_on() -> None:
    start = Start(0.0, 0.0, 0.0)
    start.observe(600.0, moved=True, steps=False)  # a bar of a download
    start.observe(4000.0, moved=True, steps=True)
    assert (start.stepped, start.longest) == (4000.0, 0.0)
    start.observe(4030.0, moved=True, steps=True)
    start.observe(4060.0, moved=False, steps=False)
    start.observe(4330.0, moved=True, steps=False)  # the bar of an evaluation
    assert (start.longest, start.silent) == (300.0, 0.0)


@pytest.mark.parametrize("alive", [True, False])
def test_time_in_which_the_log_was_unreadable_does_not_count(alive: bool) -> None:
    start = Start(0.0, 0.0, 0.0)
    for at in (30.0, 60.0):
        start.observe(at, moved=True, steps=True)
    start.unread = True
    start.observe(60.0 + HOUR, moved=alive, steps=alive)
    assert (start.longest, start.silent) == (30.0, 0.0)


USES: dict[str, tuple[dict[str, float], str | None]] = {
    "a pod that waits beside pods that spin": ({"a": 7.9, "b": 4.0, "c": 7.8, "d": 7.7}, "b"),
    "a pod that spins beside pods that wait": ({"a": 0.1, "b": 0.1, "c": 3.9}, "c"),
    "a stopped pod beside almost idle pods": (
        {"a": 0.004, "b": 0.0, "c": 0.006, "d": 0.004}, "b",
    ),
    "pods that do the same": ({"a": 7.9, "b": 6.0, "c": 7.8}, None),
    "two pods": ({"a": 7.9, "b": 0.0}, None),
    "pods that do nothing": ({"a": 0.0, "b": 0.0, "c": 0.0}, None),
    "no pod": ({}, None),
}  # fmt: skip


@pytest.mark.parametrize(("uses", "want"), USES.values(), ids=USES)
def test_the_pod_with_the_most_unusual_cpu_use(uses: dict[str, float], want: str | None) -> None:
    assert odd_pod(uses) == want
