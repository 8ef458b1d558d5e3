import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.gpu.rules.measures import (
    STRETCH,
    WINDOW,
    BoundedGrowth,
    Profile,
    Reading,
    Recent,
    Stretch,
    Throughput,
    typical,
)


@given(counts=st.lists(st.floats(0, 2.0**64), max_size=50))
def test_the_growth_is_at_most_the_time_that_has_passed(counts: list[float]) -> None:
    growth, total = BoundedGrowth(5.0, now=10.0), 0.0
    for number, count in enumerate(counts, 1):
        seconds = growth.update(count, now=10.0 + number)
        assert seconds >= 0
        total += seconds
        assert total <= number + 1e-9


def test_work_that_began_long_before_it_is_counted_counts_in_full() -> None:
    growth = BoundedGrowth(3.0, now=0.0)
    assert [growth.update(3.0, now=float(now)) for now in range(1, 30)] == [0.0] * 29
    assert growth.update(33.0, now=30.0) == 30.0


def test_the_share_covers_only_the_last_window() -> None:
    recent = Recent()
    for number in range(300):
        recent.add(0.05 if number < 200 else 0.0, now=number * 0.1)
    assert recent.share == 0.0
    for number in range(300, 310):
        recent.add(0.1, now=number * 0.1)
    assert 0.99 <= recent.share * WINDOW <= 1.01


def test_the_first_step_of_a_stretch_is_skipped() -> None:
    stretch = Stretch(Reading(0.0, 5, -3.0))
    assert stretch.record(Reading(1.0, 6, 0.5)) is None  # it was begun before
    assert stretch.record(Reading(2.0, 8, 1.5)) == 0.5
    assert stretch.record(Reading(3.0, 8, 1.5)) is None


def test_steps_are_averaged_over_a_span() -> None:
    stretch = Stretch(Reading(0.0, 0, 0.0), span=1.0)
    results = [stretch.record(Reading(step / 10, step, step / 10)) for step in range(1, 40)]
    assert [seconds for seconds in results if seconds is not None] == pytest.approx([0.1] * 3)


INCONSISTENT = {
    "the count decreases": Reading(3.0, 1, 2.5),
    "the time decreases": Reading(3.0, 9, 0.5),
    "the time does not change": Reading(3.0, 9, 2.0),
}


@pytest.mark.parametrize("reading", INCONSISTENT.values(), ids=INCONSISTENT)
def test_an_inconsistent_reading_gives_no_step_time(reading: Reading) -> None:
    stretch = Stretch(Reading(0.0, 0, 0.0))
    stretch.record(Reading(1.0, 6, 1.0))
    assert stretch.record(Reading(2.0, 7, 2.0)) == 1.0
    assert stretch.record(reading) is None


def test_the_typical_time_excludes_evaluations_and_includes_the_losses_of_a_few_steps() -> None:
    assert typical([0.1] * 20 + [4.0]) == pytest.approx(0.1)
    assert typical([0.1] * 15 + [0.2] * 5) == pytest.approx(0.125)


def test_of_two_long_steps_in_20_only_the_first_counts_as_an_outlier() -> None:
    assert typical([0.1] * 18 + [1.0] * 2) == pytest.approx((18 * 0.1 + 1.0) / 19)


def throughput(times: list[tuple[float, bool]]) -> Throughput:
    """Return the throughput of a job; `times`: the seconds of each step, and whether alone."""
    result, now = Throughput(), 0.0
    for steps, (seconds, alone) in enumerate(times, 1):
        now += seconds
        result.record(Reading(now, steps, now), alone=alone)
    return result


def test_the_normalised_speed_is_the_speed_beside_others_divided_by_the_speed_alone() -> None:
    assert throughput([(0.1, True)] * 100 + [(0.4, False)] * 100).normalised == pytest.approx(0.25)


@pytest.mark.parametrize("alone", [True, False])
def test_the_normalised_speed_is_unknown_before_both_speeds_are_measured(alone: bool) -> None:
    assert throughput([(0.1, alone)] * 100).normalised is None


def test_time_before_a_restart_does_not_count_for_the_speed() -> None:
    result = throughput([(0.1, True)] * 100 + [(0.4, False)] * 20)
    result.restart()
    for steps in range(1, 30):
        result.record(Reading(1000 + steps, 120 + steps, 1000 + 0.4 * steps), alone=False)
    assert result.normalised == pytest.approx(0.25)


INTERVAL = 0.05
"""Seconds between two readings."""


class ProfiledJob:
    """A job that makes `rate` steps a second, and is read as often as the agent does."""

    def __init__(self) -> None:
        self.profile, self.steps = Profile(), 0.0

    def run(self, seconds: float, *, busy: float, rate: float = 10.0) -> float | None:
        for _ in range(round(seconds / INTERVAL)):
            self.steps += rate * INTERVAL
            self.profile.record(int(self.steps), used=busy * INTERVAL, usable=INTERVAL)
        return self.profile.busy


def test_the_busy_fraction_is_known_after_a_minute_of_steps() -> None:
    job = ProfiledJob()
    assert job.run(STRETCH - 1, busy=0.4) is None
    assert job.run(2, busy=0.4) == pytest.approx(0.4)


@pytest.mark.parametrize("busy", [0.0, 1.0])
def test_time_before_the_first_step_does_not_count(busy: float) -> None:
    job = ProfiledJob()
    assert job.run(10 * STRETCH, busy=busy, rate=0) is None
    assert job.run(STRETCH + 1, busy=0.4) == pytest.approx(0.4)


def test_steps_before_the_first_reading_do_not_count() -> None:
    job = ProfiledJob()
    job.steps = 1000.0
    assert job.run(10 * STRETCH, busy=0.0, rate=0) is None


def test_a_stretch_with_few_steps_waits_for_more() -> None:
    job = ProfiledJob()
    assert job.run(3 * STRETCH, busy=0.4, rate=1 / STRETCH) is None
    assert job.run(2 * STRETCH, busy=0.4, rate=1 / STRETCH) == pytest.approx(0.4)


def test_a_change_of_the_job_is_fully_shown_after_five_minutes() -> None:
    job = ProfiledJob()
    job.run(10 * STRETCH + 1, busy=0.4)
    results = [job.run(STRETCH, busy=0.9) for _ in range(6)]
    assert results == sorted(results, key=lambda busy: busy or 0)
    assert results[0] == pytest.approx(0.5, abs=0.02)
    assert results[-1] == pytest.approx(0.9)


def test_a_new_process_starts_a_new_stretch_and_known_values_stay() -> None:
    job = ProfiledJob()
    assert job.run(STRETCH + 1, busy=0.4) == pytest.approx(0.4)
    job.run(STRETCH / 2, busy=1.0)
    job.steps = 0
    assert job.run(STRETCH / 2, busy=0.4) == pytest.approx(0.4)
    assert job.run(STRETCH, busy=0.4) == pytest.approx(0.4)


def test_the_busy_fraction_is_between_0_and_1_whatever_is_reported() -> None:
    assert ProfiledJob().run(STRETCH + 1, busy=7.0) == 1.0
    assert ProfiledJob().run(STRETCH + 1, busy=-7.0) == 0.0
