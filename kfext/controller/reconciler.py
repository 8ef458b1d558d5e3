"""Decide: the controller's only loop, which runs the planner and begins to write its steps.

Steps of many jobs are written at once, but never two steps of one job.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from kfext.controller.job_display import JobDisplay
from kfext.controller.metrics import Metrics, guard
from kfext.controller.step_executor import StepExecutor
from kfext.core.lifecycle.steps import Resize, Step, log_fields
from kfext.core.patches.json_patch import Unpatchable
from kfext.errors import ApiError
from kfext.model.moment import Moment
from kfext.state.mirror.cards import Reserve, Unreserve
from kfext.state.mirror.placeholders import Ask, Withdraw
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner, Report
from kfext.state.running.executor import TURN_SECONDS

_log = structlog.get_logger(__name__)

_TICK_SECONDS = 5.0  # the most between two ticks, so that the liveness probe sees the loop run
_PAUSE_SECONDS = 0.02
"""The least time between two ticks, so that the pods of a gang, created one by one, are not decided
on one by one. The first event after a longer time is handled at once."""
_LATE_SECONDS = 1.0
"""A tick that is this late means that the process stood still, as in a paused virtual machine."""
_CATCH_UP_SECONDS = 1.0
"""Pause before a late tick, so that the watches first deliver the events that were missed."""


class Reconciler:
    """Runs the loop over a planner; `wake` is set whenever there is something to decide.

    `calm`: called with the moment of each tick that left nothing to decide, right after it.
    """

    def __init__(
        self,
        *,
        planner: Planner,
        wake: asyncio.Event,
        writer: StepExecutor,
        display: JobDisplay,
        metrics: Metrics,
        calm: Callable[[Moment], None] = lambda _now: None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ticked_at = self._companion_ran_at = monotonic()
        self._planner = planner
        self._wake = wake
        self._writer = writer
        self._display = display
        self._metrics = metrics
        self._calm = calm
        self._wall = wall
        self._monotonic = monotonic

    async def run(self) -> None:
        """Decide and write until cancelled."""
        async with asyncio.TaskGroup() as writes:
            due = self._monotonic()
            while True:
                if self._monotonic() - due > _LATE_SECONDS:
                    await asyncio.sleep(_CATCH_UP_SECONDS)
                remainder = self.tick(writes)
                due = self._monotonic()
                if remainder:
                    await asyncio.sleep(0)  # other tasks first, then the remainder
                    continue
                wait = min(max(self._planner.next_alarm() - due, 0.0), _TICK_SECONDS)
                due += wait
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                if (pause := _PAUSE_SECONDS - self.since_tick()) > 0:
                    await asyncio.sleep(pause)

    def since_tick(self) -> float:
        """Return the seconds since the last tick."""
        return self._monotonic() - self._ticked_at

    def tick(self, writes: asyncio.TaskGroup) -> int:
        """Decide on the jobs that changed and begin to write; return the number that remain."""
        self._wake.clear()
        self._ticked_at = self._monotonic()
        began = time.perf_counter()
        now = self.now()
        tick = self._planner.tick(now)
        if tick.decided:
            self._metrics.ticks.observe(time.perf_counter() - began)
            self._metrics.decisions.inc(tick.decided)
        if not tick.remainder:
            self._calm(now)
        for tracked, error in tick.failures:
            job = tracked.job
            _log.error("no decision", job=job.name, namespace=job.namespace, exc_info=error)
            self._metrics.steps.labels(step="none", outcome="failed").inc()
        for phase, seconds in tick.phases:
            self._metrics.phases.labels(phase=phase).observe(seconds)
        for tracked, step in tick.steps:
            writes.create_task(self._carry_out(tracked, step))
        for report in tick.reports:
            self._report(report)
        for card_step in self._planner.card_steps(self._monotonic()):
            writes.create_task(self._reserve(card_step))
        for placeholder_step in self._planner.placeholder_steps(self._monotonic()):
            writes.create_task(self._ask(placeholder_step))
        if not tick.remainder or self._companion_is_due():
            self._change_running(writes)
        return tick.remainder

    async def _reserve(self, step: Reserve | Unreserve) -> None:
        """Reserve a GPU for a slot, or release it; a step that fails is tried again later."""
        await self._attempt(step, self._writer.write_card(step), place=step.place)
        self._planner.cards.finish(step, self._monotonic())
        self._wake.set()

    async def _ask(self, step: Ask | Withdraw) -> None:
        """Create or delete a placeholder; a step that fails is tried again later."""
        error = await self._attempt(step, self._writer.write_placeholder(step), name=step.name)
        final = _final(error) if error else ""
        at = self._monotonic()
        self._planner.placeholders.finish(step, at, accepted=error is None, final=final)
        self._wake.set()

    async def _attempt(
        self, step: object, write: Awaitable[None], **fields: object
    ) -> Exception | None:
        """Write a step that belongs to no job; return the error if it was not written."""
        name, failed = type(step).__name__, None
        log = _log.bind(step=name, **fields)
        try:
            await write
            log.info("step")
        except Exception as error:
            failed, expected = error, isinstance(error, ApiError)
            log.warning("step failed", error=str(error), exc_info=not expected)
        self._metrics.steps.labels(step=name, outcome="failed" if failed else "done").inc()
        return failed

    def _companion_is_due(self) -> bool:
        """Return whether the companion is due although jobs still wait for a decision."""
        due = min(self._companion_ran_at + TURN_SECONDS, self._planner.companion.next_look())
        return self._monotonic() >= due

    def _change_running(self, writes: asyncio.TaskGroup) -> None:
        self._companion_ran_at = self._monotonic()
        companion = self._planner.companion
        try:
            steps = companion.steps(self.now())
        except Exception:
            # An error in a policy must not keep jobs from being placed.
            _log.exception("the companion has failed")
            self._metrics.steps.labels(step=Resize.__name__, outcome="failed").inc()
            return
        for tracked, error in companion.failures:
            _log.error("skipped", job=tracked.job.name, exc_info=error)
        for tracked, step in steps:
            writes.create_task(self._carry_out(tracked, step))
        for tracked, type_, shown in companion.news():
            with guard("show a change", job=tracked.job.name, namespace=tracked.job.namespace):
                self._display.show_companion(tracked, type_, shown)

    def _report(self, report: Report) -> None:
        job = report.tracked.job
        with guard("show a job", job=job.name, namespace=job.namespace):
            self._display.show(report.tracked, report.phase, report.verdict)

    def now(self) -> Moment:
        """Return the present moment."""
        return Moment(wall=self._wall(), monotonic=self._monotonic())

    async def _carry_out(self, tracked: TrackedJob, step: Step) -> None:
        """Write one step. After a failure the job is decided on anew."""
        job, name = tracked.job, type(step).__name__
        log = _log.bind(job=job.name, namespace=job.namespace, uid=job.uid, kind=job.kind.name)
        log = log.bind(**log_fields(step))
        complete = refused = False
        final = ""
        try:
            complete = await self._writer.write(tracked, step)
            log.info("step", step=name, complete=complete)
            if complete:
                with guard("record a step", job=job.name, namespace=job.namespace, step=name):
                    self._display.record(tracked, step)
            self._metrics.count(step, being_created=job.being_created)
        except Exception as error:
            # This includes errors of kfext: one job must not end the controller of all jobs.
            refused, final = True, _final(error)
            expected = isinstance(error, ApiError | Unpatchable)
            log.warning("step failed", step=name, error=str(error), exc_info=not expected)
            self._metrics.steps.labels(step=name, outcome="failed").inc()
        finally:
            with guard("finish a step", job=job.name, namespace=job.namespace, step=name):
                report = self._planner.finish(
                    tracked, self.now(), complete=complete, refused=refused, final=final
                )
                if report is not None:
                    self._report(report)


def _final(error: Exception) -> str:
    """Return the API server's refusal if the same request would be refused again; else empty."""
    final = isinstance(error, Unpatchable) or (isinstance(error, ApiError) and error.final)
    return str(error) if final else ""
