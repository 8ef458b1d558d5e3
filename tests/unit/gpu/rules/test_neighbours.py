import math
from dataclasses import dataclass

import pytest

from kfext.gpu.hook import gate
from kfext.gpu.hook.pauses import PRICE
from kfext.gpu.rules.loss import LossMeter
from kfext.gpu.rules.measures import WINDOW, Reading
from kfext.gpu.rules.neighbours import (
    LONGEST_MICRO_STEP,
    OUTSTANDING,
    Effects,
    Neighbours,
    Pair,
)
from kfext.gpu.rules.strikes import PATIENCE, SHUT_SECONDS
from kfext.model.shared_gpu import EVICTED_AFTER
from tests.unit.gpu.rules.card import Card

BUDGET, MINIMUM = 0.05, 0.2


def card(
    busy: float, *, budget: float = BUDGET, minimum: float = MINIMUM, looks: bool = True
) -> Card:
    return Card(Neighbours(budget=budget, now=0.0), busy, minimum=minimum, looks=looks)


@dataclass(frozen=True, slots=True)
class Rates:
    loss: float
    low: float


def rates(shared: Card, *, after: float, seconds: float) -> Rates:
    """Return high's loss and low's share in a stretch; high alone makes a step in each period."""
    shared.run(after)
    steps, served = shared.steps, shared.served
    shared.run(seconds)
    alone = seconds / shared.period
    return Rates(1 - (shared.steps - steps) / alone, (shared.served - served) / seconds)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7, 0.8])
def test_G6_high_keeps_95_percent_and_low_has_20_while_high_is_busy_for_80_at_most(
    busy: float,
) -> None:
    result = rates(card(busy), after=40, seconds=80)
    assert result.loss < BUDGET
    assert result.low >= MINIMUM - 0.01


def test_G6_high_waits_at_most_for_the_work_that_the_gate_leaves_on_the_card() -> None:
    shared = card(0.5)
    shared.run(60)
    assert shared.latencies
    assert max(shared.latencies) <= LONGEST_MICRO_STEP
    assert shared.begun_while_busy == 0


def test_the_budget_wins_over_the_minimum_and_that_is_reported() -> None:
    shared = card(0.95)
    result = rates(shared, after=40, seconds=PATIENCE + 40)
    assert result.loss < BUDGET
    assert result.low < MINIMUM
    assert shared.ruling.infeasible
    assert not shared.ruling.evict


def test_without_a_minimum_low_has_what_high_leaves() -> None:
    shared = card(0.95, minimum=0.0)
    result = rates(shared, after=10, seconds=30)
    assert result.low == pytest.approx(0.05, abs=0.03)
    assert not shared.ruling.infeasible


def test_a_job_without_work_has_no_claim_to_time() -> None:
    shared = card(0.95)
    shared.wants = False
    shared.run(120)
    assert shared.ruling.allowance == 0
    assert not shared.ruling.infeasible


def test_a_pair_that_keeps_losing_is_shut_out_three_times_and_then_separated() -> None:
    shared = card(0.8, looks=False)
    for time in range(1, EVICTED_AFTER + 1):
        while shared.ruling.times_shut < time:
            shared.run(0.05)
            assert shared.now < 1000
        assert shared.ruling.shut
        assert shared.ruling.evict is (time == EVICTED_AFTER)
        assert shared.neighbours.meter.loss is None  # a second strike needs new losses
        until = shared.now + SHUT_SECONDS - 1
        while shared.now < until:
            shared.run(0.05)
            assert shared.ruling.shut
        shared.run(2)


@pytest.mark.parametrize("known", [False, True], ids=["unknown before", "known before"])
@pytest.mark.parametrize("coarse", [0.5, 1.0])
def test_micro_steps_that_end_long_after_the_gate_is_shut_hide_no_loss(
    coarse: float, *, known: bool
) -> None:
    shared = card(0.8)
    shared.coarse = coarse
    shared.wants = False
    shared.run(100 * known)
    shared.wants = True
    shared.run(EVICTED_AFTER * (2 * PATIENCE + SHUT_SECONDS))
    assert shared.ruling.evict
    assert shared.neighbours.meter.step_seconds == pytest.approx(shared.period, rel=0.05)


@pytest.mark.parametrize(
    ("works", "rests", "shut"),
    [
        pytest.param(50, 10, True, id="most of the time"),
        pytest.param(30, 30, True, id="half of the time"),
        pytest.param(5, 100, False, id="so rarely that it is within the budget"),
    ],
)
def test_a_job_that_pauses_at_times_must_still_stay_within_the_budget(
    works: float, rests: float, *, shut: bool
) -> None:
    shared = card(0.8, looks=False)
    while shared.now < 600:
        shared.wants = True
        shared.run(works)
        shared.wants = False
        shared.run(rests)
    assert (shared.ruling.times_shut > 0) is shut


def test_a_job_that_does_not_give_way_must_leave_although_it_cannot_be_held_back() -> None:
    shared = card(0.8, looks=False)
    shared.wants = False
    shared.run(100)  # the job of high priority is known from before it comes
    shared.gated, shared.wants = False, True
    shared.run(EVICTED_AFTER * (2 * PATIENCE + SHUT_SECONDS))
    assert shared.ruling.evict


def test_a_job_that_does_not_give_way_is_suspected_before_a_job_that_does() -> None:
    neighbours, steps = Neighbours(budget=BUDGET, now=0.0), 0.0
    shut, tick, now = list[str](), 0.05, 0.0
    while now < 400 and not shut:
        apart = now < 100
        seen = {"gated": Effects(0.0, tick / 2, 0.0, False)}
        if not apart:
            seen["other"] = Effects(0.0, 0.0, 0.0, False, gives_way=False)
        steps += tick * (10 if apart else 7)
        neighbours.meter.note(Reading(now, int(steps), now))
        rulings = neighbours.rule(seen, now=now)
        shut = [name for name, ruling in rulings.items() if ruling.times_shut]
        now += tick
    assert shut == ["other"]


def test_the_gate_keeps_the_loss_small() -> None:
    result = rates(card(0.5, looks=False), after=5, seconds=30)
    assert result.loss > BUDGET


@pytest.mark.parametrize(("efficiency", "splits"), [(1.0, False), (0.4, True)])
def test_G7_a_pair_is_split_if_it_would_end_sooner_one_after_the_other(
    efficiency: float, splits: bool
) -> None:
    shared = card(0.9, budget=1.0, looks=False)  # any loss of high is within its budget
    shared.comes, shared.efficiency = 20, efficiency
    shared.run(160)
    assert (shared.ruling.times_shut > 0) is splits


MICRO_STEPS = [
    (0.05, None, 5.0), (0.05, 1000, 5.0), (0.05, 120, 1.5), (0.05, 75, 0.9375), (0.05, 20, 0.65),
    (0.02, 120, 1.2), (0.005, 1000, 2.5),
]  # fmt: skip
"""The budget, milliseconds of a step of high, and of a micro-step of low."""


@pytest.mark.parametrize(("budget", "step", "want"), MICRO_STEPS)
def test_micro_steps_are_shorter_where_the_steps_of_high_are_shorter(
    budget: float, step: float | None, want: float
) -> None:
    made = Neighbours(budget=budget, now=0.0)
    made.meter.step_seconds = None if step is None else step / 1000
    ruling = made.rule({"low": Effects(0.0, 0.0, 0.0, False)}, now=1.0)["low"]
    assert ruling.micro_step * 1000 == pytest.approx(want)


@pytest.mark.parametrize(("loss", "price"), [(None, PRICE), (0.04, PRICE), (0.06, PRICE / 2)])
def test_a_micro_step_may_cost_half_as_much_while_high_loses_too_much(
    loss: float | None, price: float
) -> None:
    made = Neighbours(budget=BUDGET, now=0.0)
    made.meter.loss = loss
    assert made.rule({"low": Effects(0.0, 0.0, 0.0, False)}, now=1.0)["low"].price == price


def test_the_number_of_micro_steps_on_the_card_is_that_of_the_gate() -> None:
    assert OUTSTANDING == gate.OUTSTANDING


def without_loss() -> LossMeter:
    meter = LossMeter(budget=BUDGET)
    for tick in range(1, 100):
        meter.note(Reading(tick * 0.1, tick, tick * 0.1))
    assert meter.loss == pytest.approx(0.0)
    return meter


def allowances(pair: Pair, *, intruded: float, seconds: range) -> list[float]:
    results = []
    for now in seconds:
        pair.note(worked=0.0, intruded=intruded, waits=True, gated=True, now=float(now))
        results.append(pair.allowance)
    return results


def test_neither_savings_nor_debts_grow_without_end() -> None:
    pair = Pair(without_loss(), minimum=MINIMUM, now=0.0)
    saved = allowances(pair, intruded=0.0, seconds=range(1, 100))
    assert max(saved) == BUDGET * WINDOW
    assert max(allowances(pair, intruded=10.0**9, seconds=range(100, 110))) == 0  # by its page
    owed = math.ceil(BUDGET * PATIENCE / MINIMUM) - 1
    assert max(allowances(pair, intruded=0.0, seconds=range(110, 110 + owed))) == 0
    assert max(allowances(pair, intruded=0.0, seconds=range(110 + owed, 120 + owed))) > 0


@pytest.mark.parametrize(
    ("waits", "gated", "infeasible"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_a_minimum_is_missed_only_by_a_job_that_waits_at_an_open_gate(
    waits: bool, gated: bool, infeasible: bool
) -> None:
    pair = Pair(without_loss(), minimum=MINIMUM, now=0.0)
    for now in range(1, int(PATIENCE) + 20):
        pair.note(worked=0.1, intruded=0.0, waits=waits, gated=gated, now=float(now))
    assert pair.share == pytest.approx(0.1)
    assert pair.infeasible is infeasible
    assert (pair.allowance > 0) is infeasible
