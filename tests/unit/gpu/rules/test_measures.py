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
def test_at_most_the_time_that_passed_is_counted_whatever_a_page_says(
    counts: list[float],
) -> None:
    growth, total = BoundedGrowth(5.0, now=10.0), 0.0
    for number, count in enumerate(counts, 1):
        grown = growth.grown(count, now=10.0 + number)
        assert grown >= 0
        total += grown
        assert total <= number + 1e-9


def test_work_that_has_begun_long_before_its_end_is_counted_in_full() -> None:
    growth = BoundedGrowth(3.0, now=0.0)
    assert [growth.grown(3.0, now=float(now)) for now in range(1, 30)] == [0.0] * 29
    assert growth.grown(33.0, now=30.0) == 30.0


def test_the_share_is_of_the_last_window() -> None:
    recent = Recent()
    for number in range(300):
        recent.add(0.05 if number < 200 else 0.0, now=number * 0.1)
    assert recent.share == 0.0
    for number in range(300, 310):
        recent.add(0.1, now=number * 0.1)
    assert 0.99 <= recent.share * WINDOW <= 1.01


def test_the_first_step_of_a_stretch_is_left_out() -> None:
    stretch = Stretch(Reading(0.0, 5, -3.0))
    assert stretch.note(Reading(1.0, 6, 0.5)) is None  # it was begun before
    assert stretch.note(Reading(2.0, 8, 1.5)) == 0.5
    assert stretch.note(Reading(3.0, 8, 1.5)) is None


def test_steps_are_averaged_over_a_span() -> None:
    stretch = Stretch(Reading(0.0, 0, 0.0), span=1.0)
    results = [stretch.note(Reading(step / 10, step, step / 10)) for step in range(1, 40)]
    assert [seconds for seconds in results if seconds is not None] == pytest.approx([0.1] * 3)


LIES = {
    "the count goes backwards": Reading(3.0, 1, 2.5),
    "the time goes backwards": Reading(3.0, 9, 0.5),
    "the time stands still": Reading(3.0, 9, 2.0),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_an_inconsistent_page_shows_no_speed(lie: Reading) -> None:
    stretch = Stretch(Reading(0.0, 0, 0.0))
    stretch.note(Reading(1.0, 6, 1.0))
    assert stretch.note(Reading(2.0, 7, 2.0)) == 1.0
    assert stretch.note(lie) is None


def test_the_typical_time_leaves_out_evaluations_but_not_the_losses_of_a_few_steps() -> None:
    assert typical([0.1] * 20 + [4.0]) == pytest.approx(0.1)
    assert typical([0.1] * 15 + [0.2] * 5) == pytest.approx(0.125)


def test_of_many_long_steps_most_run_beside_others() -> None:
    assert typical([0.1] * 18 + [1.0] * 2) == pytest.approx((18 * 0.1 + 1.0) / 19)


def noted(times: list[tuple[float, bool]]) -> Throughput:
    """Return the throughput of a job from the length of each step, alone or not."""
    result, now = Throughput(), 0.0
    for steps, (took, alone) in enumerate(times, 1):
        now += took
        result.note(Reading(now, steps, now), alone=alone)
    return result


def test_the_speed_beside_others_is_a_part_of_the_speed_alone() -> None:
    assert noted([(0.1, True)] * 100 + [(0.4, False)] * 100).normalised == pytest.approx(0.25)


@pytest.mark.parametrize("alone", [True, False])
def test_without_both_speeds_nothing_is_known(alone: bool) -> None:
    assert noted([(0.1, alone)] * 100).normalised is None


def test_time_in_which_a_job_is_held_back_does_not_count_for_its_speed() -> None:
    result = noted([(0.1, True)] * 100 + [(0.4, False)] * 20)
    result.restart()
    for steps in range(1, 30):
        result.note(Reading(1000 + steps, 120 + steps, 1000 + 0.4 * steps), alone=False)
    assert result.normalised == pytest.approx(0.25)


LOOK = 0.05


class Trial:
    """A job that makes steps at a rate, and is read as the agent does."""

    def __init__(self) -> None:
        self.profile, self.steps = Profile(), 0.0

    def run(self, seconds: float, *, busy: float, rate: float = 10.0) -> float | None:
        for _ in range(round(seconds / LOOK)):
            self.steps += rate * LOOK
            self.profile.note(int(self.steps), used=busy * LOOK, could=LOOK)
        return self.profile.busy


def test_a_job_is_known_after_a_minute_of_its_steps() -> None:
    trial = Trial()
    assert trial.run(STRETCH - 1, busy=0.4) is None
    assert trial.run(2, busy=0.4) == pytest.approx(0.4)


@pytest.mark.parametrize("busy", [0.0, 1.0])
def test_nothing_counts_before_the_first_step(busy: float) -> None:
    """It loads data, or compiles, which says nothing about the later steps."""
    trial = Trial()
    assert trial.run(10 * STRETCH, busy=busy, rate=0) is None
    assert trial.run(STRETCH + 1, busy=0.4) == pytest.approx(0.4)


def test_steps_from_before_the_first_look_do_not_count() -> None:
    trial = Trial()
    trial.steps = 1000.0
    assert trial.run(10 * STRETCH, busy=0.0, rate=0) is None


def test_a_stretch_with_few_steps_waits_for_more() -> None:
    trial = Trial()
    assert trial.run(3 * STRETCH, busy=0.4, rate=1 / STRETCH) is None
    assert trial.run(2 * STRETCH, busy=0.4, rate=1 / STRETCH) == pytest.approx(0.4)


def test_later_changes_are_followed_over_five_minutes() -> None:
    trial = Trial()
    trial.run(10 * STRETCH + 1, busy=0.4)
    results = [trial.run(STRETCH, busy=0.9) for _ in range(6)]
    assert results == sorted(results, key=lambda busy: busy or 0)
    assert results[0] == pytest.approx(0.5, abs=0.02)
    assert results[-1] == pytest.approx(0.9)


def test_a_new_process_starts_a_new_stretch_and_known_values_stay() -> None:
    trial = Trial()
    assert trial.run(STRETCH + 1, busy=0.4) == pytest.approx(0.4)
    trial.run(STRETCH / 2, busy=1.0)
    trial.steps = 0
    assert trial.run(STRETCH / 2, busy=0.4) == pytest.approx(0.4)
    assert trial.run(STRETCH, busy=0.4) == pytest.approx(0.4)


def test_each_part_is_between_none_and_all_whatever_is_stated() -> None:
    assert Trial().run(STRETCH + 1, busy=7.0) == 1.0
    assert Trial().run(STRETCH + 1, busy=-7.0) == 0.0
