from collections.abc import Callable, Iterator

import pytest

from kfext.core.gpu.loss import HELD_SECONDS, PERIODS, LossMeter, Reading

_TICK = 0.05


def readings(seconds: Callable[[float], float], until: float) -> Iterator[Reading]:
    """Yield what is read of a job whose steps take so long, by the time at which they begin."""
    at, steps, stepped = 0.0, 0, 0.0
    ends = seconds(0.0)
    while at < until:
        while ends <= at:
            steps, stepped = steps + 1, ends
            ends += seconds(ends)
        yield Reading(at, steps, stepped)
        at += _TICK


def run(seconds: Callable[[LossMeter, float], float], until: float) -> LossMeter:
    meter = LossMeter(0.0)
    for reading in readings(lambda at: seconds(meter, at), until):
        meter.note(reading)
    return meter


@pytest.mark.parametrize("alone", [0.02, 0.1, 0.7])
@pytest.mark.parametrize("loss", [0.0, 0.02, 0.3])
def test_the_loss_is_measured_to_a_part_of_a_percent(alone: float, loss: float) -> None:
    meter = run(lambda one, _: alone if one.holding else alone / (1 - loss), until=200)
    assert meter.loss == pytest.approx(loss, abs=0.003)
    assert meter.step_seconds == pytest.approx(alone, rel=0.003)


def test_others_are_held_back_for_one_thirtieth_of_the_time() -> None:
    meter, held = LossMeter(0.0), 0
    for reading in readings(lambda _: 0.1, 300):
        meter.note(reading)
        held += meter.holding
    assert held * _TICK == pytest.approx(300 * HELD_SECONDS / PERIODS, rel=0.2)


def test_a_window_lasts_until_three_steps_were_made() -> None:
    meter, held = LossMeter(0.0), []
    for reading in readings(lambda _: 2.0, 120):
        meter.note(reading)
        held.append(meter.holding)
    assert meter.step_seconds == pytest.approx(2.0)
    assert sum(held) * _TICK < 0.2 * 120


def test_one_slow_window_decides_nothing() -> None:
    def seconds(meter: LossMeter, at: float) -> float:
        return 1.0 if meter.holding and 60 < at < 75 else 0.1

    assert run(seconds, until=300).loss == pytest.approx(0.0, abs=0.01)


def test_nothing_is_known_before_the_first_window() -> None:
    meter = run(lambda _, __: 0.1, until=0.9)
    assert meter.loss is None
    assert meter.step_seconds is None


def test_a_job_that_makes_no_steps_is_not_waited_for() -> None:
    meter = LossMeter(0.0)
    held = 0
    for tick in range(2000):
        meter.note(Reading(tick * _TICK, steps=0, stepped=0.0))
        held += meter.holding
    assert held * _TICK <= 11
    assert meter.loss is None
