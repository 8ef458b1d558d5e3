import math

import pytest

from kfext.gpu.rules.ladder import PATIENCE
from kfext.gpu.rules.loss import LossMeter
from kfext.gpu.rules.pair import Pair
from kfext.gpu.rules.steps import Reading
from kfext.gpu.rules.tally import WINDOW

BUDGET, MINIMUM = 0.05, 0.2


def without_loss() -> LossMeter:
    meter = LossMeter(budget=BUDGET)
    for tick in range(1, 100):
        meter.note(Reading(tick * 0.1, tick, tick * 0.1))
    assert meter.loss == pytest.approx(0.0)
    return meter


def allowances(pair: Pair, *, intruded: float, seconds: range) -> list[float]:
    found = []
    for now in seconds:
        pair.note(worked=0.0, intruded=intruded, waits=True, gated=True, now=float(now))
        found.append(pair.allowance)
    return found


def test_neither_savings_nor_debts_grow_without_end() -> None:
    pair = Pair(without_loss(), minimum=MINIMUM, now=0.0)
    saved = allowances(pair, intruded=0.0, seconds=range(1, 100))
    assert max(saved) == BUDGET * WINDOW
    assert max(allowances(pair, intruded=10.0**9, seconds=range(100, 110))) == 0  # so its page says
    owed = math.ceil(BUDGET * PATIENCE / MINIMUM) - 1
    assert max(allowances(pair, intruded=0.0, seconds=range(110, 110 + owed))) == 0
    assert max(allowances(pair, intruded=0.0, seconds=range(110 + owed, 120 + owed))) > 0


@pytest.mark.parametrize(
    ("waits", "gated", "infeasible"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_a_minimum_is_missed_only_by_one_that_waits_at_a_gate_that_is_not_shut(
    waits: bool, gated: bool, infeasible: bool
) -> None:
    pair = Pair(without_loss(), minimum=MINIMUM, now=0.0)
    for now in range(1, int(PATIENCE) + 20):
        pair.note(worked=0.1, intruded=0.0, waits=waits, gated=gated, now=float(now))
    assert pair.share == pytest.approx(0.1)
    assert pair.infeasible is infeasible
    assert (pair.allowance > 0) is infeasible
