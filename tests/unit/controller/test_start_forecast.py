"""Forecasts of starts: in short turns beside the main loop, and shown when they change."""

from typing import Any

import pytest

from kfext.controller.metrics import ERRORS, Metrics
from kfext.controller.start_forecast import StartForecast
from kfext.core.queue.expected import ExpectedStart
from kfext.model.job import TrainingJob
from kfext.state.forecast.lookahead import Lookahead
from tests.unit.state.forecast.scene import NOW, Scene, runs, started, waits


class FakeWriter:
    """Records the expected start of each job."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, ExpectedStart | None]] = []

    def show_expected(self, job: TrainingJob, expected: ExpectedStart | None) -> None:
        self.shown.append((job.uid, expected))


class ForecastTurns:
    """The forecast of a scene, run turn by turn; each of its steps takes `step_seconds`.

    `seconds`: the present time of the forecast's clock.
    """

    def __init__(self, scene: Scene, *, step_seconds: float = 0.001) -> None:
        self.scene, self.writer, self.metrics = scene, FakeWriter(), Metrics()
        self.seconds = 0.0
        self._step_seconds = step_seconds
        self.forecast = StartForecast(
            scene.planner,
            self.writer,  # type: ignore[arg-type]
            self.metrics,
            now=lambda: scene.now,
            clock=self._clock,
        )

    def _clock(self) -> float:
        self.seconds += self._step_seconds
        return self.seconds

    def all(self) -> list[float]:
        """Run turns after a tick until a forecast is done; return the pauses between them."""
        pauses = []
        self.forecast.begin(self.scene.now)
        while (pause := self.forecast.turn()) != 5.0:
            pauses.append(pause)
        return pauses

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def waiting() -> Scene:
    scene = Scene(runs("first"), waits("head"), first=600)
    scene.tick()
    return scene


def test_an_unchanged_forecast_is_shown_once() -> None:
    turns = ForecastTurns(waiting())
    turns.all()
    ((uid, expected),) = turns.writer.shown
    assert uid == "head"
    assert expected is not None
    assert expected.time == NOW + 600
    turns.scene.after(60)
    turns.all()
    assert len(turns.writer.shown) == 1


def test_the_pauses_keep_a_forecast_to_a_small_fraction_of_a_cpu() -> None:
    turns = ForecastTurns(waiting(), step_seconds=0.03)
    pauses = turns.all()
    assert len(pauses) > 5
    assert all(pause == pytest.approx(0.03 / 0.03 - 0.03) for pause in pauses)


def test_an_error_makes_the_starts_unknown_until_the_next_forecast(monkeypatch: Any) -> None:
    turns = ForecastTurns(waiting())
    turns.all()

    def fail(*_: object, **__: object) -> Any:
        yield
        raise ZeroDivisionError

    monkeypatch.setattr(Lookahead, "run", fail)
    turns.scene.show(first=6000)
    turns.scene.after(60)
    with pytest.raises(ZeroDivisionError):
        turns.all()
    _, shown = turns.writer.shown[-1]
    assert shown is not None
    assert "an error of kfext" in shown.unknown
    monkeypatch.undo()
    turns.scene.after(60)
    turns.scene.show(first=900)
    turns.all()
    assert turns.writer.shown[-1][1] != shown


async def test_an_error_does_not_end_the_task(monkeypatch: Any) -> None:
    turns, before = ForecastTurns(waiting()), ERRORS._value.get()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    def fail() -> float:
        raise ZeroDivisionError

    monkeypatch.setattr("kfext.controller.start_forecast.asyncio.sleep", sleep)
    monkeypatch.setattr(turns.forecast, "turn", fail)
    with pytest.raises(KeyboardInterrupt):
        await turns.forecast.run()
    assert ERRORS._value.get() == before + 2
    assert slept == [5.0, 5.0]


def test_a_forecast_begins_only_after_a_tick() -> None:
    turns = ForecastTurns(waiting())
    assert turns.forecast.turn() == 5.0
    assert turns.writer.shown == []
    turns.forecast.begin(turns.scene.now)
    assert turns.forecast.turn() == 5.0
    assert len(turns.writer.shown) == 1


def test_an_error_at_the_start_of_a_forecast_is_not_raised(monkeypatch: Any) -> None:
    turns, before = ForecastTurns(waiting()), ERRORS._value.get()
    monkeypatch.setattr("kfext.state.forecast.forecaster.outset_of", None)
    turns.all()
    ((_, shown),) = turns.writer.shown
    assert shown is not None
    assert "an error of kfext" in shown.unknown
    assert ERRORS._value.get() == before + 1


def test_starts_are_counted_by_the_accuracy_of_their_forecast() -> None:
    turns = ForecastTurns(waiting())
    turns.all()
    turns.scene.planner.cluster.observe_job(started("head").raw)
    turns.scene.after(500)
    turns.all()
    assert turns.sample("kfext_expected_starts_total", was="within") == 1
    assert turns.sample("kfext_expected_start_error_seconds_sum", lead="10-60m") == 100
