"""Forecasts of the starts of waiting jobs, with a small fraction of a CPU, beside the main loop."""

import asyncio
import math
import time
from collections.abc import Callable, Generator

from kfext.controller.metrics import Metrics, guard
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.model.moment import Moment
from kfext.state.forecast.forecaster import Forecaster
from kfext.state.planner.planner import Planner

_CHECK_SECONDS = 5.0
_TURN_SECONDS = 0.02
"""A turn ends after the step that reaches this time, so that it does not delay the main loop."""
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
        self._steps: Generator[None, None, None] | None = None
        self._next_check = -math.inf

    async def run(self) -> None:
        """Forecast until cancelled."""
        while True:
            pause = _CHECK_SECONDS
            with guard("forecast the starts of jobs"):
                pause = self.turn()
            await asyncio.sleep(pause)

    def begin(self, now: Moment) -> None:
        """Begin a forecast if it is due; call it right after a tick that left nothing to decide.

        Then recording the planner settles nothing that a later tick would settle.
        """
        if self._steps is not None or now.monotonic < self._next_check:
            return
        self._next_check = now.monotonic + _CHECK_SECONDS
        with guard("begin to forecast the starts of jobs"):
            if self._forecaster.due(now):
                self._steps = self._forecaster.forecast(now)
                next(self._steps, None)

    def turn(self) -> float:
        """Score the new starts, and continue the forecast; return the seconds to the next turn."""
        forecaster, now, began = self._forecaster, self._now(), self._clock()
        for score in forecaster.scores_of_started(now.wall):
            self._metrics.start_errors.labels(lead=score.lead).observe(score.error)
            self._metrics.starts.labels(was=score.was).inc()
        steps, self._steps = self._steps, None
        try:
            for _ in steps or ():
                if (used := self._clock() - began) >= _TURN_SECONDS:
                    self._steps = steps
                    return used / _CPU_FRACTION - used
        finally:
            for tracked in forecaster.news():
                expected = forecaster.expected(tracked.job.uid)
                self._plan_writer.show_expected(tracked.job, expected)
        return _CHECK_SECONDS
