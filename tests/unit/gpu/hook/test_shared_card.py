"""The hooks of a high-priority job (high) and a low-priority job (low), in virtual time.

`u`: the fraction of the time in which high is busy while it is alone on the card.
"""

import random
from collections.abc import Callable
from functools import cache

import pytest

from kfext.gpu.hook.words import NS
from kfext.gpu.rules.measures import Reading
from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP, Effects, Neighbours
from tests.unit.gpu.hook.virtual import BUSY, LATE, step_rates

Pauses = Callable[[random.Random], float]
"""Draws a pause, in seconds."""
Kind = Callable[[float], Pauses]
"""Returns pauses with this mean, in seconds."""


def _regular(mean: float) -> Pauses:
    return lambda rng: mean + rng.gauss(0.0, 0.0001)


def _spread(mean: float) -> Pauses:
    return lambda rng: max(mean * rng.gauss(1.0, 0.2), 0.0)


def _bursts(mean: float) -> Pauses:
    return lambda rng: rng.expovariate(1 / mean)


def _with_evaluations(mean: float) -> Pauses:
    return lambda rng: mean * (0.9 if rng.random() > 0.02 else 5.9) * rng.gauss(1.0, 0.03)


def ordered_micro_step(step: float) -> float:
    """Return the micro-step that the agent orders beside steps of this length, in seconds."""
    neighbours = Neighbours(budget=0.05, now=0.0)
    for number in range(1, 60):
        neighbours.meter.record(Reading(number * step, number, number * step))
        ruling = neighbours.rule({"low": Effects(0.0, 0.0, 0.0, False)}, now=number * step)["low"]
    return ruling.micro_step


@cache
def rate_alone(micro_step: float = LONGEST_MICRO_STEP) -> float:
    """Return the steps a second of low alone on the card."""
    return step_rates(None, micro_step=micro_step, seconds=4.0).low


def loss_and_use(u: float, pauses: Kind) -> tuple[float, float]:
    """Return high's loss, and the fraction of the time not used by high that low uses."""
    busy = BUSY / NS
    pause = pauses(busy / u - busy)
    before = step_rates(pause, low=False).high
    result = step_rates(pause, micro_step=ordered_micro_step(1 / before))
    return 1 - result.high / before, result.low / rate_alone() / (1 - before * busy)


@pytest.mark.parametrize(("u", "use"), [(0.5, 0.9), (0.8, 0.8), (0.9, 0.8)])
def test_high_loses_little_and_low_uses_much_time_if_pauses_repeat(u: float, use: float) -> None:
    loss, used = loss_and_use(u, _regular)
    assert loss <= 0.01
    assert used >= use


@pytest.mark.parametrize("u", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("pauses", [_spread, _bursts, _with_evaluations])
def test_high_loses_at_most_1_percent_whatever_its_pauses_are(u: float, pauses: Kind) -> None:
    loss, used = loss_and_use(u, pauses)
    assert loss <= 0.01
    assert used >= 0.75


@pytest.mark.parametrize("micro_step", [0.0042, LONGEST_MICRO_STEP])
def test_low_alone_loses_at_most_half_a_percent_to_the_hook(micro_step: float) -> None:
    # With the first length, little work is left for the last micro-step before the optimizer.
    assert rate_alone(micro_step) >= 0.995 * NS / BUSY


@pytest.mark.parametrize("pauses", [_regular, _spread])
def test_high_loses_at_most_1_percent_if_its_beacon_is_late_as_with_keras(pauses: Kind) -> None:
    busy = BUSY / NS
    pause = pauses(busy)
    before, result = (
        step_rates(pause, low=low, micro_step=ordered_micro_step(2 * busy), late=LATE)
        for low in (False, True)
    )
    assert result.high >= 0.99 * before.high
    assert result.low / rate_alone() >= 0.8 * (1 - before.high * busy)


@pytest.mark.parametrize(("u", "works"), [(0.4, True), (0.8, False)])
def test_a_cuda_graph_is_replayed_only_in_pauses_that_are_longer(u: float, works: bool) -> None:
    busy = BUSY / NS
    pause = _regular(busy / u - busy)
    before, result = (step_rates(pause, low=low, graph=True, warm=4.0) for low in (False, True))
    assert result.high >= 0.99 * before.high
    assert (result.low > 0) is works
