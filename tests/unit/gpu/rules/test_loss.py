from collections.abc import Callable, Iterator
from itertools import count

import pytest

from kfext.gpu.rules.loss import HELD_SECONDS, LONGEST_HELD, PERIOD, LossMeter
from kfext.gpu.rules.measures import Reading

_TICK = 0.05


def readings(seconds: Callable[[float], float], until: float) -> Iterator[Reading]:
    """Yield the readings of a job; `seconds`: the length of a step, by the time of its start."""
    at, steps, stepped = 0.0, 0, 0.0
    ends = seconds(0.0)
    while at < until:
        while ends <= at:
            steps, stepped = steps + 1, ends
            ends += seconds(ends)
        yield Reading(at, steps, stepped)
        at += _TICK


def run(seconds: Callable[[LossMeter, float], float], until: float) -> LossMeter:
    meter = LossMeter(budget=0.05)
    for reading in readings(lambda at: seconds(meter, at), until):
        meter.record(reading)
    return meter


@pytest.mark.parametrize("alone", [0.02, 0.1, 0.7])
@pytest.mark.parametrize("loss", [0.0, 0.02, 0.3])
def test_the_loss_is_measured_within_0_3_percentage_points(alone: float, loss: float) -> None:
    meter = run(lambda high, _: alone if high.holding else alone / (1 - loss), until=200)
    assert meter.loss == pytest.approx(loss, abs=0.003)
    assert meter.step_seconds == pytest.approx(alone, rel=0.003)


def test_others_are_held_back_for_one_thirtieth_of_the_time() -> None:
    meter, held = LossMeter(budget=0.05), 0
    for reading in readings(lambda _: 0.1, 300):
        meter.record(reading)
        held += meter.holding
    assert held * _TICK == pytest.approx(300 * HELD_SECONDS / PERIOD, rel=0.2)


def test_steps_of_two_seconds_are_measured_in_a_fifth_of_the_time() -> None:
    meter, held = LossMeter(budget=0.05), []
    for reading in readings(lambda _: 2.0, 120):
        meter.record(reading)
        held.append(meter.holding)
    assert meter.step_seconds == pytest.approx(2.0)
    assert sum(held) * _TICK < 0.2 * 120


def test_the_earlier_steps_alone_count_while_the_other_jobs_do_not_stop() -> None:
    def seconds(meter: LossMeter, at: float) -> float:
        meter.held_back = at < 100
        return 0.1 if at < 100 else 0.125

    meter = run(seconds, until=400)
    assert meter.step_seconds == pytest.approx(0.1)
    assert meter.loss == pytest.approx(0.2, abs=0.003)
    assert meter.windows > 5, "windows beside a job that does not stop confirm the loss too"


def test_one_slow_window_does_not_change_the_loss() -> None:
    def seconds(meter: LossMeter, at: float) -> float:
        return 1.0 if meter.holding and 60 < at < 75 else 0.1

    assert run(seconds, until=300).loss == pytest.approx(0.0, abs=0.01)


def test_evaluations_and_checkpoints_are_no_loss() -> None:
    meter, numbers = LossMeter(budget=0.05), count()
    for reading in readings(lambda _: 4.0 if next(numbers) % 40 == 39 else 0.1, 300):
        meter.record(reading)
        assert not meter.over
    assert meter.step_seconds == pytest.approx(0.1)


@pytest.mark.parametrize("step", [3.0, 7.0, 11.0])
def test_steps_of_many_seconds_are_measured_too(step: float) -> None:
    meter = run(lambda high, _: step if high.holding else 1.2 * step, until=40 * step)
    assert meter.step_seconds == pytest.approx(step)
    assert meter.loss == pytest.approx(1 / 6, abs=0.01)


def test_others_are_never_held_back_for_over_a_minute() -> None:
    meter, held, longest = LossMeter(budget=0.05), 0, 0
    for reading in readings(lambda _: 50.0, 2000):
        meter.record(reading)
        held = held + 1 if meter.holding else 0
        longest = max(longest, held)
    assert 0 < longest * _TICK <= LONGEST_HELD + _TICK
    assert meter.loss is None


def test_a_job_that_becomes_slower_by_itself_is_over_its_budget_for_less_than_a_minute() -> None:
    meter, over = LossMeter(budget=0.05), 0
    for reading in readings(lambda at: 0.1 if at < 200 else 0.15, 400):
        meter.record(reading)
        over += meter.over
    assert 0 < over * _TICK < 60  # so no job is shut out for that
    assert meter.loss == pytest.approx(0.0, abs=0.01)


def test_a_restart_forgets_the_loss_and_keeps_the_time_of_a_step_alone() -> None:
    meter = LossMeter(budget=0.05)
    for reading in readings(lambda _: 0.1 if meter.holding else 0.2, 100):
        meter.record(reading)
    assert meter.loss == pytest.approx(0.5, abs=0.01)
    meter.restart()
    assert meter.loss is None
    assert meter.step_seconds == pytest.approx(0.1)


def test_a_jump_of_the_steps_at_a_restart_does_not_count() -> None:
    meter = LossMeter(budget=0.05)
    for reading in readings(lambda _: 0.1, 100):
        meter.record(reading)
    meter.restart()
    for reading in readings(lambda _: 0.1, 10):
        meter.record(Reading(100 + reading.at, 10**6 + reading.steps, 100 + reading.stepped))
    assert meter.loss == pytest.approx(0.0, abs=0.01)


def test_a_decrease_of_the_steps_does_not_count() -> None:
    meter = LossMeter(budget=0.05)
    for reading in readings(lambda at: 0.1 if at < 150 or meter.holding else 0.2, 200):
        steps = reading.steps - 1000 * (reading.at > 100)
        meter.record(Reading(reading.at, max(steps, 0), reading.stepped))
    assert meter.loss == pytest.approx(0.5, abs=0.01)


def test_nothing_is_known_before_the_first_window() -> None:
    meter = run(lambda _, __: 0.1, until=0.9)
    assert meter.loss is None
    assert meter.step_seconds is None


def test_the_other_jobs_are_not_held_back_for_a_job_without_steps() -> None:
    meter = LossMeter(budget=0.05)
    for tick in range(2000):
        meter.record(Reading(tick * _TICK, steps=0, stepped=0.0))
        assert not meter.holding
    assert meter.loss is None


def test_a_window_in_which_the_job_stops_making_steps_ends() -> None:
    meter, held = LossMeter(budget=0.05), 0
    for reading in readings(lambda at: 0.1 if at < 1 else 10**6, 100):
        meter.record(reading)
        held += meter.holding
    assert 0 < held * _TICK <= 11  # the longest window, and a second


@pytest.mark.parametrize("step", [0.01, 0.06, 0.5])
def test_a_window_is_extended_by_the_time_in_which_another_job_still_works(step: float) -> None:
    meter, began = LossMeter(budget=0.05), 0.0
    for reading in readings(lambda _: step if meter.holding else 2 * step, 200):
        began = began if meter.holding else reading.at
        meter.disturbed = reading.at - began < 15  # in each window
        meter.record(reading)
    assert meter.step_seconds == pytest.approx(step, rel=0.02)
    assert meter.loss == pytest.approx(0.5, abs=0.02)


def test_long_windows_hold_the_other_jobs_back_for_about_a_quarter_of_the_time_at_most() -> None:
    meter, began, held = LossMeter(budget=0.05), 0.0, 0
    for reading in readings(lambda _: 0.2, 2000):
        began = began if meter.holding else reading.at
        meter.disturbed = reading.at - began < 20
        meter.record(reading)
        held += meter.holding
    assert held * _TICK < 0.27 * 2000


def test_beside_a_job_that_does_not_stop_the_others_are_held_back_for_less_than_70_percent() -> (
    None
):
    meter, held = LossMeter(budget=0.05), 0
    for reading in readings(lambda at: 0.1 if at < 40 else 0.2, 400):
        meter.disturbed = reading.at >= 40
        meter.record(reading)
        held += meter.holding and reading.at > 60
    assert meter.over
    assert held * _TICK < 0.7 * 340
