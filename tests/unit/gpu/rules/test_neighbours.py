import math
from dataclasses import dataclass

import pytest

from kfext.gpu.hook import gate
from kfext.gpu.hook.pauses import PRICE
from kfext.gpu.rules.loss import LossMeter
from kfext.gpu.rules.measures import WINDOW, Reading
from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP, OUTSTANDING, Effects, Neighbours, Pair
from kfext.gpu.rules.strikes import PATIENCE, SHUT_SECONDS
from kfext.model.shared_gpu import EVICTED_AFTER
from tests.unit.gpu.rules.card import Card

BUDGET, MINIMUM = 0.05, 0.2


def card(
    busy: float, *, budget: float = BUDGET, minimum: float = MINIMUM, reads_beacon: bool = True
) -> Card:
    neighbours = Neighbours(budget=budget, now=0.0)
    return Card(neighbours, busy, minimum=minimum, reads_beacon=reads_beacon)


@dataclass(frozen=True, slots=True)
class Rates:
    """The loss of the high-priority job, and the share of the low-priority job, as fractions."""

    loss: float
    low: float


def rates(shared: Card, *, after: float, seconds: float) -> Rates:
    """Return the rates over `seconds`; the high-priority job alone makes a step in each period."""
    shared.run(after)
    steps, served = shared.steps, shared.served
    shared.run(seconds)
    alone = seconds / shared.period
    return Rates(1 - (shared.steps - steps) / alone, (shared.served - served) / seconds)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7, 0.8])
def test_G6_high_keeps_95_percent_and_low_has_20_while_high_needs_80(busy: float) -> None:
    result = rates(card(busy), after=40, seconds=80)
    assert result.loss < BUDGET
    assert result.low >= MINIMUM - 0.01


def test_G6_high_waits_for_at_most_one_micro_step() -> None:
    shared = card(0.5)
    shared.run(60)
    assert shared.latencies
    assert max(shared.latencies) <= LONGEST_MICRO_STEP
    assert shared.begun_while_busy == 0


def test_the_budget_takes_precedence_over_the_minimum_which_is_then_infeasible() -> None:
    shared = card(0.95)
    result = rates(shared, after=40, seconds=PATIENCE + 40)
    assert result.loss < BUDGET
    assert result.low < MINIMUM
    assert shared.ruling.infeasible
    assert not shared.ruling.evict


def test_without_a_minimum_low_gets_the_time_in_which_high_is_idle() -> None:
    shared = card(0.95, minimum=0.0)
    result = rates(shared, after=10, seconds=30)
    assert result.low == pytest.approx(0.05, abs=0.03)
    assert not shared.ruling.infeasible


def test_a_job_without_work_gets_no_allowance() -> None:
    shared = card(0.95)
    shared.wants = False
    shared.run(120)
    assert shared.ruling.allowance == 0
    assert not shared.ruling.infeasible


def test_a_job_that_keeps_causing_losses_is_shut_out_and_the_third_time_evicted() -> None:
    shared = card(0.8, reads_beacon=False)
    for strike in range(1, EVICTED_AFTER + 1):
        while shared.ruling.times_shut < strike:
            shared.run(0.05)
            assert shared.now < 1000
        assert shared.ruling.shut
        assert shared.ruling.evict is (strike == EVICTED_AFTER)
        assert shared.neighbours.meter.loss is None  # a second strike needs new losses
        until = shared.now + SHUT_SECONDS - 1
        while shared.now < until:
            shared.run(0.05)
            assert shared.ruling.shut
        shared.run(2)


@pytest.mark.parametrize("known", [False, True], ids=["unknown before", "known before"])
@pytest.mark.parametrize("micro_step", [0.5, 1.0])
def test_long_micro_steps_at_a_shut_gate_hide_no_loss(micro_step: float, *, known: bool) -> None:
    shared = card(0.8)
    shared.least_micro_step = micro_step
    shared.wants = False
    shared.run(100 * known)  # the time of a step alone becomes known
    shared.wants = True
    shared.run(EVICTED_AFTER * (2 * PATIENCE + SHUT_SECONDS))
    assert shared.ruling.evict
    assert shared.neighbours.meter.step_seconds == pytest.approx(shared.period, rel=0.05)


@pytest.mark.parametrize(
    ("work", "pause", "shut"),
    [
        pytest.param(50, 10, True, id="most of the time"),
        pytest.param(30, 30, True, id="half of the time"),
        pytest.param(5, 100, False, id="so rarely that it is within the budget"),
    ],
)
def test_a_job_with_pauses_is_shut_out_if_its_losses_exceed_the_budget_over_time(
    work: float, pause: float, *, shut: bool
) -> None:
    shared = card(0.8, reads_beacon=False)
    while shared.now < 600:
        shared.wants = True
        shared.run(work)
        shared.wants = False
        shared.run(pause)
    assert (shared.ruling.times_shut > 0) is shut


def test_a_job_that_does_not_give_way_is_evicted_although_it_cannot_be_held_back() -> None:
    shared = card(0.8, reads_beacon=False)
    shared.wants = False
    shared.run(100)  # the time of a step alone becomes known
    shared.gated, shared.wants = False, True
    shared.run(EVICTED_AFTER * (2 * PATIENCE + SHUT_SECONDS))
    assert shared.ruling.evict


def test_a_job_that_does_not_give_way_is_suspected_before_a_job_that_does() -> None:
    neighbours, steps = Neighbours(budget=BUDGET, now=0.0), 0.0
    shut, tick, now = list[str](), 0.05, 0.0
    while now < 400 and not shut:
        before = now < 100
        effects = {"gated": Effects(0.0, tick / 2, 0.0, False)}
        if not before:
            effects["other"] = Effects(0.0, 0.0, 0.0, False, gives_way=False)
        steps += tick * (10 if before else 7)
        neighbours.meter.record(Reading(now, int(steps), now))
        rulings = neighbours.rule(effects, now=now)
        shut = [name for name, ruling in rulings.items() if ruling.times_shut]
        now += tick
    assert shut == ["other"]


def test_the_loss_exceeds_the_budget_if_the_gate_ignores_the_beacon() -> None:
    result = rates(card(0.5, reads_beacon=False), after=5, seconds=30)
    assert result.loss > BUDGET


@pytest.mark.parametrize(("efficiency", "splits"), [(1.0, False), (0.4, True)])
def test_G7_jobs_that_end_sooner_in_sequence_are_separated(efficiency: float, splits: bool) -> None:
    shared = card(0.9, budget=1.0, reads_beacon=False)  # any loss of high is within its budget
    shared.high_from, shared.efficiency = 20, efficiency
    shared.run(160)
    assert (shared.ruling.times_shut > 0) is splits


MICRO_STEPS = [
    (0.05, None, 5.0), (0.05, 1000, 5.0), (0.05, 120, 1.5), (0.05, 75, 0.9375), (0.05, 20, 0.65),
    (0.02, 120, 1.2), (0.005, 1000, 2.5),
]  # fmt: skip
"""The budget, the milliseconds of a step of high, and of the longest micro-step of low."""


@pytest.mark.parametrize(("budget", "step", "want"), MICRO_STEPS)
def test_the_longest_micro_step_depends_on_the_budget_and_the_steps_of_high(
    budget: float, step: float | None, want: float
) -> None:
    neighbours = Neighbours(budget=budget, now=0.0)
    neighbours.meter.step_seconds = None if step is None else step / 1000
    ruling = neighbours.rule({"low": Effects(0.0, 0.0, 0.0, False)}, now=1.0)["low"]
    assert ruling.micro_step * 1000 == pytest.approx(want)


@pytest.mark.parametrize(("loss", "price"), [(None, PRICE), (0.04, PRICE), (0.06, PRICE / 2)])
def test_the_price_is_halved_while_over_the_loss_budget(loss: float | None, price: float) -> None:
    neighbours = Neighbours(budget=BUDGET, now=0.0)
    neighbours.meter.loss = loss
    assert neighbours.rule({"low": Effects(0.0, 0.0, 0.0, False)}, now=1.0)["low"].price == price


def test_the_rules_and_the_gate_allow_the_same_number_of_micro_steps() -> None:
    assert OUTSTANDING == gate.OUTSTANDING


def meter_without_loss() -> LossMeter:
    meter = LossMeter(budget=BUDGET)
    for tick in range(1, 100):
        meter.record(Reading(tick * 0.1, tick, tick * 0.1))
    assert meter.loss == pytest.approx(0.0)
    return meter


def allowances(pair: Pair, *, intruded: float, seconds: range) -> list[float]:
    results = []
    for now in seconds:
        pair.record(worked=0.0, intruded=intruded, waiting=True, gated=True, now=float(now))
        results.append(pair.allowance)
    return results


def test_saved_and_owed_time_are_bounded() -> None:
    pair = Pair(meter_without_loss(), minimum=MINIMUM, now=0.0)
    saved = allowances(pair, intruded=0.0, seconds=range(1, 100))
    assert max(saved) == BUDGET * WINDOW
    assert max(allowances(pair, intruded=10.0**9, seconds=range(100, 110))) == 0  # a false report
    owed = math.ceil(BUDGET * PATIENCE / MINIMUM) - 1
    assert max(allowances(pair, intruded=0.0, seconds=range(110, 110 + owed))) == 0
    assert max(allowances(pair, intruded=0.0, seconds=range(110 + owed, 120 + owed))) > 0


@pytest.mark.parametrize(
    ("waiting", "gated", "infeasible"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_a_minimum_is_infeasible_only_for_a_job_that_waits_at_a_gate_that_is_not_shut(
    waiting: bool, gated: bool, infeasible: bool
) -> None:
    pair = Pair(meter_without_loss(), minimum=MINIMUM, now=0.0)
    for now in range(1, int(PATIENCE) + 20):
        pair.record(worked=0.1, intruded=0.0, waiting=waiting, gated=gated, now=float(now))
    assert pair.share == pytest.approx(0.1)
    assert pair.infeasible is infeasible
    assert (pair.allowance > 0) is infeasible
