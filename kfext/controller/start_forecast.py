"""Forecasts of the starts of waiting jobs, beside the loop, with a small fraction of a CPU."""

import asyncio
import math
import time
from collections.abc import Callable, Generator

from kfext.controller.metrics import Metrics, guard
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.model.moment import Moment
from kfext.state.forecast.forecaster import Forecaster
from kfext.state.planner.planner import Planner

_LOOK_SECONDS = 5.0
_TURN_SECONDS = 0.02
"""A turn ends after the part that reaches this time, so that it does not delay the loop."""
_CPU_FRACTION = 0.03
"""The fraction of a CPU that a forecast may use, however many jobs wait."""


class StartForecast:
    """Shows the expected starts of the waiting jobs of a planner on their TrainingPlans."""

    def __init__(
        self,
        planner: Planner,
        plan_writer: TrainingPlanWriter,
        metrics: Metrics,
        *,
        now: Callable[[], Moment],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._forecaster = Forecaster(planner)
        self._plan_writer = plan_writer
        self._metrics = metrics
        self._now, self._clock = now, clock
        self._parts: Generator[None, None, None] | None = None
        self._look_at = -math.inf

    async def run(self) -> None:
        """Forecast until cancelled."""
        while True:
            pause = _LOOK_SECONDS
            with guard("forecast the starts of jobs"):
                pause = self.turn()
            await asyncio.sleep(pause)

    def begin(self, now: Moment) -> None:
        """Begin a forecast if it is due, at the moment of a tick that left nothing to decide.

        At that moment, recording the planner settles nothing that a later tick would settle.
        """
        if self._parts is not None or now.monotonic < self._look_at:
            return
        self._look_at = now.monotonic + _LOOK_SECONDS
        with guard("begin to forecast the starts of jobs"):
            if self._forecaster.due(now):
                self._parts = self._forecaster.forecast(now)
                next(self._parts, None)

    def turn(self) -> float:
        """Score the starts since the last turn, and continue; return the seconds to the next."""
        forecaster, now, began = self._forecaster, self._now(), self._clock()
        for score in forecaster.scores_of_started(now.wall):
            self._metrics.start_errors.labels(lead=score.lead).observe(score.error)
            self._metrics.starts.labels(was=score.was).inc()
        parts, self._parts = self._parts, None
        try:
            for _ in parts or ():
                if (used := self._clock() - began) >= _TURN_SECONDS:
                    self._parts = parts
                    return used / _CPU_FRACTION - used
        finally:
            for tracked in forecaster.news():
                expected = forecaster.expected(tracked.job.uid)
                self._plan_writer.show_expected(tracked.job, expected)
        return _LOOK_SECONDS
