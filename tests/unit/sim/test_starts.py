"""Expected starts in simulated clusters: forecasts change no decision and survive a restart."""

from dataclasses import replace

import pytest

from kfext.sim.arms import ARMS, GANG, KFEXT
from kfext.sim.worlds import random_world
from kfext.state.forecast import forecaster
from kfext.state.forecast.forecaster import Forecaster
from kfext.state.forecast.outset import outset_of
from tests.unit.sim.bed import GANG as BOUNDED
from tests.unit.sim.bed import Bed

FIRST = replace(BOUNDED, name="train-1", arrives=1.0, steps=2000, deadline=None, workers=8)
HEAD = replace(FIRST, name="head", arrives=30.0, trains="head")
SMALL = replace(FIRST, name="small", arrives=60.0, steps=100, workers=2, trains="small")


@pytest.mark.histories
@pytest.mark.parametrize("arm", [GANG, KFEXT, "kfext-shortest"])
def test_forecasts_change_no_decision(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecaster, "EVERY", 10.0)
    for seed in range(4):
        plain = ARMS[arm](random_world(seed), seed)
        twin = ARMS[arm](random_world(seed), seed).forecast()
        assert plain.run().driver.written == twin.run().driver.written


def test_a_forecast_in_a_simulated_cluster_is_correct() -> None:
    scores = Bed(FIRST, HEAD, SMALL).forecast().run().starts
    assert len(scores) >= 2
    assert all(score.error < 60 for score in scores)


def forecast(bed: Bed) -> Forecaster:
    result = Forecaster(bed.planner)
    assert result.due(bed.driver.moment)
    list(result.forecast(bed.driver.moment))
    return result


@pytest.mark.parametrize("second", range(50, 200, 50))
def test_after_a_restart_the_forecast_is_the_same(second: int) -> None:
    """The next controller has the same forecast as soon as it has read a log."""
    bed = Bed(FIRST, HEAD, SMALL).at(second + 40)
    before = forecast(bed).expected(HEAD.uid)
    bed.restart()
    bed.after(40)
    after = forecast(bed).expected(HEAD.uid)
    assert before is not None
    assert after is not None
    assert before.time == pytest.approx(after.time, abs=30)


def test_a_controller_that_is_killed_in_a_forecast_is_replaced() -> None:
    bed = Bed(FIRST, HEAD, SMALL).at(200)
    parts = Forecaster(bed.planner).forecast(bed.driver.moment)
    next(parts)
    bed.restart()
    bed.run()
    assert bed.over


def test_a_forecast_leaves_the_planner_unchanged() -> None:
    bed = Bed(FIRST, HEAD, SMALL).at(200)
    before = outset_of(bed.planner, bed.driver.moment)
    forecast(bed)
    assert outset_of(bed.planner, bed.driver.moment) == before
