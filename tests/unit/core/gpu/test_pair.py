from dataclasses import dataclass

import pytest

from kfext.core.gpu.loss import LossMeter
from kfext.core.gpu.pair import EVICTED_AFTER, PATIENCE, SHUT_SECONDS, Gate, Pair
from tests.unit.core.gpu.card import Card

BUDGET, MINIMUM = 0.05, 0.2


def card(busy: float, *, minimum: float = MINIMUM, looks: bool = True) -> Card:
    meter = LossMeter(0.0)
    pair = Pair(meter, budget=BUDGET, minimum=minimum, now=0.0)
    return Card(meter, pair, busy, looks=looks)


@dataclass(frozen=True, slots=True)
class Rates:
    loss: float
    low: float


def rates(one: Card, *, after: float, seconds: float) -> Rates:
    """Return high's loss and low's share in a stretch; high alone makes a step in each period."""
    one.run(after)
    steps, served = one.steps, one.served
    one.run(seconds)
    alone = seconds / one.period
    return Rates(1 - (one.steps - steps) / alone, (one.served - served) / seconds)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7, 0.8])
def test_G6_high_keeps_95_percent_and_low_has_20_while_high_is_busy_for_80_at_most(
    busy: float,
) -> None:
    found = rates(card(busy), after=40, seconds=80)
    assert found.loss < BUDGET
    assert found.low >= MINIMUM - 0.01


def test_G6_high_waits_for_one_micro_step_at_most() -> None:
    one = card(0.5)
    one.run(60)
    assert one.latencies
    assert max(one.latencies) <= 0.005
    assert one.begun_while_busy == 0


def test_the_budget_wins_over_the_minimum_and_that_is_reported() -> None:
    one = card(0.95)
    found = rates(one, after=40, seconds=PATIENCE + 40)
    assert found.loss < BUDGET
    assert found.low < MINIMUM
    assert one.ruling is not None
    assert one.ruling.infeasible
    assert not one.ruling.evict


def test_without_a_minimum_low_has_what_high_leaves() -> None:
    one = card(0.95, minimum=0.0)
    found = rates(one, after=10, seconds=30)
    assert found.low == pytest.approx(0.05, abs=0.03)
    assert one.ruling is not None
    assert not one.ruling.infeasible


def test_a_pair_that_goes_on_losing_is_shut_out_three_times_and_then_taken_apart() -> None:
    one = card(0.8, looks=False)
    for shut in range(1, EVICTED_AFTER + 1):
        while one.ruling is None or one.ruling.gate is not Gate.SHUT:
            one.run(1)
            assert one.now < 1000
        tickets = one.ruling.tickets
        assert one.ruling.evict is (shut == EVICTED_AFTER)
        one.run(SHUT_SECONDS - 2)
        assert one.ruling.gate is Gate.SHUT
        assert one.ruling.tickets == tickets + 1  # one step, so that collectives live
        one.run(4)


def test_it_is_the_gate_that_keeps_the_loss_small() -> None:
    found = rates(card(0.5, looks=False), after=5, seconds=30)
    assert found.loss > BUDGET


def test_micro_steps_are_shorter_where_high_s_steps_are() -> None:
    one = card(0.5)
    one.period = 0.04
    one.run(10)
    assert one.ruling is not None
    assert one.ruling.micro_step == pytest.approx(BUDGET * 0.04, rel=0.1)
