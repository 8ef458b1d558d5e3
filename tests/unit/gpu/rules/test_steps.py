import pytest

from kfext.gpu.rules.steps import Reading, Stretch, Throughput, typical


def test_the_first_step_of_a_stretch_is_left_out() -> None:
    stretch = Stretch(Reading(0.0, 5, -3.0))
    assert stretch.note(Reading(1.0, 6, 0.5)) is None  # it was begun before
    assert stretch.note(Reading(2.0, 8, 1.5)) == 0.5
    assert stretch.note(Reading(3.0, 8, 1.5)) is None


def test_steps_are_averaged_over_a_span() -> None:
    stretch = Stretch(Reading(0.0, 0, 0.0), span=1.0)
    found = [stretch.note(Reading(step / 10, step, step / 10)) for step in range(1, 40)]
    assert [seconds for seconds in found if seconds is not None] == pytest.approx([0.1] * 3)


LIES = {
    "the count goes backwards": Reading(3.0, 1, 2.5),
    "the time goes backwards": Reading(3.0, 9, 0.5),
    "the time stands still": Reading(3.0, 9, 2.0),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_page_that_makes_no_sense_is_no_speed(lie: Reading) -> None:
    stretch = Stretch(Reading(0.0, 0, 0.0))
    stretch.note(Reading(1.0, 6, 1.0))
    assert stretch.note(Reading(2.0, 7, 2.0)) == 1.0
    assert stretch.note(lie) is None


def test_the_typical_time_leaves_out_evaluations_but_not_what_a_few_steps_lose() -> None:
    assert typical([0.1] * 20 + [4.0]) == pytest.approx(0.1)
    assert typical([0.1] * 15 + [0.2] * 5) == pytest.approx(0.125)


def test_of_many_steps_that_take_long_most_do_so_beside_others() -> None:
    assert typical([0.1] * 18 + [1.0] * 2) == pytest.approx((18 * 0.1 + 1.0) / 19)


def noted(times: list[tuple[float, bool]]) -> Throughput:
    """Return the throughput of a job; each step took so long, alone or not."""
    found, now = Throughput(), 0.0
    for steps, (took, alone) in enumerate(times, 1):
        now += took
        found.note(Reading(now, steps, now), alone=alone)
    return found


def test_the_speed_beside_others_is_a_part_of_that_alone() -> None:
    assert noted([(0.1, True)] * 100 + [(0.4, False)] * 100).normalised == pytest.approx(0.25)


@pytest.mark.parametrize("alone", [True, False])
def test_without_both_speeds_nothing_is_known(alone: bool) -> None:
    assert noted([(0.1, alone)] * 100).normalised is None


def test_time_in_which_a_job_is_held_back_is_not_its_speed() -> None:
    found = noted([(0.1, True)] * 100 + [(0.4, False)] * 20)
    found.restart()
    for steps in range(1, 30):
        found.note(Reading(1000 + steps, 120 + steps, 1000 + 0.4 * steps), alone=False)
    assert found.normalised == pytest.approx(0.25)
