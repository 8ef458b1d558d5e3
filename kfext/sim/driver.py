"""kfext in a simulated cluster: the real planner, driven as the controller's loop drives it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never
from zlib import crc32

from kfext.core.lifecycle.steps import Change, Step, job_operations, pod_writes
from kfext.errors import ApiError, Conflict, NotFound
from kfext.model.cpu_use import CpuUse
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.sim.api import ApiServer
from kfext.sim.clock import Clock
from kfext.sim.kubelets import Kubelets, is_printer, uses_of
from kfext.sim.objects import LivePod
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.running.policy import ConditionStatus

TURN_SECONDS = 5.0
"""The longest time between two turns of the controller's loop."""
_LOGS_AT_ONCE = 64
_LATE = {0: 1, 1: 3}
"""Of ten steps, two are written this many seconds late, the others at once."""
_MAX_TURNS = 100
"""The most rounds of decisions in a second; with more, the planner does not settle."""
_SKEW = -700_000.0
"""The simulated second at which the monotonic clock would show 0."""


@dataclass(frozen=True, slots=True)
class Written:
    """A step of a job, by its name, that was written or refused at the second `at`."""

    at: float
    job: str
    step: Step
    refused: bool = False


@dataclass(slots=True)
class Driver:
    """The loop around a planner.

    `seed`: draws which steps of a job are written late; None means that no step is.
    `measure`: returns the CPU use of a pod, or None for unknown. It is called as often as kfext
        measures, or every `measure_seconds` if that is more often.
    `failures`: collects the errors of kfext with the names of the jobs; if None, they end the run.
    `woken`: whether there is something to decide. `written`: all steps, in order.
    `shown`: job name and type -> the last status of each condition of the companion.
    """

    planner: Planner
    api: ApiServer
    kubelets: Kubelets
    clock: Clock
    seed: int | None
    measure_seconds: float = math.inf
    measure: Callable[[LivePod], CpuUse | None] = field(init=False)
    failures: list[tuple[str, Exception]] | None = None
    woken: bool = False
    written: list[Written] = field(default_factory=list)
    shown: dict[tuple[str, str], ConditionStatus | None] = field(default_factory=dict)
    _turned: float = 0.0
    _measured: dict[str, tuple[float, float]] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.measure = self.use_of

    @property
    def moment(self) -> Moment:
        """The current time as kfext sees it."""
        return Moment(wall=self.clock.wall, monotonic=self.clock.now - _SKEW)

    def begin(self) -> None:
        """Start to measure the use of CPU."""
        self._measure()

    def next_turn(self) -> float:
        """Return the second of the next turn if nothing happens before it."""
        alarm = self.planner.next_alarm() + _SKEW
        return min(self._turned + TURN_SECONDS, max(alarm, self.clock.now + 1))

    def turn(self) -> None:
        """Read the logs that are due, decide and start to write, until nothing remains to do."""
        self._turned = self.clock.now
        self._read()
        for _ in range(_MAX_TURNS):
            self.woken = False
            planner = self.planner
            tick = planner.tick(self.moment)
            self._collect(tick.failures)
            for tracked, step in tick.steps:
                self._write(planner, tracked, step)
            if tick.remainder:
                continue
            planner = self.planner  # a test may replace the controller; the old one writes no more
            companion = planner.companion
            steps = companion.steps(self.moment)
            self._collect(companion.failures)
            for tracked, step in steps:
                self._write(planner, tracked, step)
            for tracked, type_, shown in companion.news():
                self.shown[tracked.job.name, type_] = shown
            if not self.woken:
                return
        raise AssertionError("the planner does not settle")

    def _collect(self, failures: Sequence[tuple[TrackedJob, Exception]]) -> None:
        if self.failures is None:
            assert not failures, failures
        else:
            self.failures += [(tracked.job.name, error) for tracked, error in failures]

    # --- logs and use -----------------------------------------------------------------------------

    def _read(self) -> None:
        progress = self.planner.progress
        while reads := progress.due(self.moment.monotonic, most=_LOGS_AT_ONCE):
            for read in reads:
                live = self.api.find(read.pod)
                if live is None:
                    progress.fail(read, None, self.moment)
                    continue
                lines = []
                if is_printer(live):
                    training = live.job.training
                    training.advance()
                    lines, training.lines = training.lines, []
                progress.read_lines(read, lines, self.moment)

    def use_of(self, live: LivePod) -> CpuUse | None:
        """Return the CPU use of a pod as metrics-server does: the mean since the last call."""
        live.job.training.advance()
        now, busy = self.clock.now, live.job.training.busy
        since, before = self._measured.get(live.pod.uid, (now, busy))
        self._measured[live.pod.uid] = now, busy
        if now <= since:
            return None
        cores = (busy - before) / (now - since) * uses_of(live) / 1000
        return CpuUse(cores, at=self.clock.wall, window=now - since)

    def _measure(self) -> None:
        progress = self.planner.progress
        pods = [live for pod in progress.running() if (live := self.api.find(pod))]
        uses = {live.pod.uid: self.measure(live) for live in pods}
        progress.record_measurements({uid: use for uid, use in uses.items() if use})
        self.clock.after(min(self.measure_seconds, progress.measure_seconds), self._measure)

    # --- steps ------------------------------------------------------------------------------------

    def _write(self, planner: Planner, tracked: TrackedJob, step: Step) -> None:
        """Carry out a step, at once or after a delay in which the cluster changes."""
        if late := self._lateness(tracked, step):
            self.clock.after(late, lambda: self._carry_out(planner, tracked, step))
        else:
            self._carry_out(planner, tracked, step)

    def _lateness(self, tracked: TrackedJob, step: Step) -> int:
        """Return the delay of a step, in seconds."""
        return 0 if self.seed is None else _LATE.get(self._draw(tracked, step) % 10, 0)

    def _draw(self, tracked: TrackedJob, step: Step) -> int:
        """Return a random number of the seed, the job and the step, unaffected by other jobs."""
        key = f"{self.seed} {tracked.job.name} {type(step).__name__}"
        self._counts[key] += 1
        return crc32(f"{key} {self._counts[key]}".encode())

    def _carry_out(self, planner: Planner, tracked: TrackedJob, step: Step) -> None:
        if planner is not self.planner:
            return  # its controller has been replaced since
        complete = refused = False
        final = ""
        try:
            complete = self._write_all(planner, tracked, step)
        except ApiError as error:
            refused, final = True, error.message if error.final else ""
        self.written.append(Written(self.clock.now, tracked.job.name, step, refused))
        self.woken = True
        if planner is self.planner:
            planner.finish(tracked, self.moment, complete=complete, refused=refused, final=final)

    def _write_all(self, planner: Planner, tracked: TrackedJob, step: Step) -> bool:
        """Write a step; return whether all its pods were unchanged since kfext saw them.

        Raises ApiError if a write is refused.
        """
        uid, operations = tracked.job.uid, job_operations(step, tracked.raw, tracked.job)
        if operations is not None:
            self.api.patch_job(uid, operations)
            if planner is not self.planner:
                return False
        written = [self._change_pod(pod, change) for pod, change in pod_writes(step, tracked.job)]
        return all(written)

    def _change_pod(self, pod: Pod, change: Change) -> bool:
        """Patch, resize or delete a pod; return whether it was unchanged since kfext saw it."""
        try:
            match change:
                case None:
                    live = self.api.unchanged(pod)
                    for listener in self.api.on_deletion:
                        listener(live)
                    self.kubelets.delete(live)
                case list():
                    self.api.patch_pod(pod, change)
                case dict():
                    self.api.resize_pod(pod, change)
                case _:
                    assert_never(change)
        except (NotFound, Conflict):
            return False
        return True
