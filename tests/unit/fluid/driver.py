"""kfext in a model cluster: the real planner, driven as the controller's loop and readers do."""

from collections import Counter
from dataclasses import dataclass, field
from zlib import crc32

import jsonpatch

from kfext.core.companion.policy import Shown
from kfext.core.lifecycle.steps import (
    DeleteUnbound,
    Pin,
    Release,
    RequestCheckpoint,
    RestartWorkers,
    Step,
    Ungate,
)
from kfext.core.patches import pod as pod_patch
from kfext.core.patches.pod import request_patch
from kfext.model.cpu_use import CpuUse
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.state.planner import Planner
from kfext.state.tracked_job import TrackedJob
from tests.unit.fluid.api import Api
from tests.unit.fluid.clock import Clock
from tests.unit.fluid.kubelets import Kubelets, is_printer
from tests.unit.fluid.training import Doing
from tests.unit.step_patches import job_operations

TURN_SECONDS = 5.0
"""The controller's loop turns at least this often."""
_MEASURE_SECONDS = 30.0
_MOST_READ = 64
_LATE = {0: 1, 1: 3}
"""After how many seconds two in ten steps are written; the others are at once."""
_MOST_TURNS = 100
_SKEW = -700_000.0


class RefusedError(Exception):
    """The API server would refuse a write again, and says why."""


@dataclass(frozen=True, slots=True)
class Written:
    """A step that was carried out, or refused."""

    at: float
    job: str
    step: Step
    refused: bool = False


@dataclass(slots=True)
class Driver:
    """`woken`: whether there is something to decide. `written`: all steps, in order.

    `shown`: what the companion has last shown, by job and condition.

    `seed`: of which steps are written late: the same ones of a job, whatever others do.
    """

    planner: Planner
    api: Api
    kubelets: Kubelets
    clock: Clock
    seed: int
    woken: bool = False
    written: list[Written] = field(default_factory=list)
    shown: dict[tuple[str, str], Shown | None] = field(default_factory=dict)
    _turned: float = 0.0
    _counts: Counter[str] = field(default_factory=Counter)

    @property
    def moment(self) -> Moment:
        return Moment(wall=self.clock.wall, monotonic=self.clock.now - _SKEW)

    def wake(self) -> None:
        self.woken = True

    def begin(self) -> None:
        self._measure()

    def next_turn(self) -> float:
        """Return the second at which the loop turns next if nothing happens before."""
        alarm = self.planner.next_alarm() + _SKEW
        return min(self._turned + TURN_SECONDS, max(alarm, self.clock.now + 1))

    def turn(self) -> None:
        """Read the logs that are due, decide, and begin to write, until nothing is left to do."""
        self._turned = self.clock.now
        self._read()
        for _ in range(_MOST_TURNS):
            self.woken = False
            tick = self.planner.tick(self.moment)
            assert not tick.failures, tick.failures
            for tracked, step in tick.steps:
                self._write(tracked, step)
            if tick.remainder:
                continue
            companion = self.planner.companion
            steps = companion.steps(self.moment)
            assert not companion.failures, companion.failures
            for tracked, resize in steps:
                self._write(tracked, resize)
            for tracked, type_, shown in companion.news():
                self.shown[tracked.job.name, type_] = shown
            if not self.woken:
                return
        raise AssertionError("the planner never comes to rest")

    # --- logs and use ---------------------------------------------------------------------------

    def _read(self) -> None:
        progress = self.planner.progress
        while reads := progress.due(self.moment.monotonic, most=_MOST_READ):
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
                progress.take(read, lines, self.moment)

    def _measure(self) -> None:
        at, progress = self.clock.wall, self.planner.progress
        used = {}
        for pod in progress.running():
            live = self.api.find(pod)
            if live is not None:
                training = live.job.training
                busy = training.share if training.doing is Doing.TRAINS else 0.0
                cores = busy * live.job.spec.uses / 1000
                used[pod.uid] = CpuUse(cores, at=at, window=_MEASURE_SECONDS)
        progress.measured(used)
        self.clock.after(_MEASURE_SECONDS, self._measure)

    # --- steps ----------------------------------------------------------------------------------

    def _write(self, tracked: TrackedJob, step: Step) -> None:
        """Carry a step out: most at once, some only after seconds in which the world moves on."""
        late = _LATE.get(self._drawn(tracked, step) % 10, 0)
        if late:
            self.clock.after(late, lambda: self._carry_out(tracked, step))
        else:
            self._carry_out(tracked, step)

    def _drawn(self, tracked: TrackedJob, step: Step) -> int:
        which = f"{self.seed} {tracked.job.name} {type(step).__name__}"
        self._counts[which] += 1
        return crc32(f"{which} {self._counts[which]}".encode())

    def _carry_out(self, tracked: TrackedJob, step: Step) -> None:
        complete = refused = False
        final = ""
        try:
            complete = self._done(tracked, step)
        except jsonpatch.JsonPatchException:
            refused = True
        except RefusedError as error:
            refused, final = True, str(error)
        self.written.append(Written(self.clock.now, tracked.job.name, step, refused))
        self.planner.finish(tracked, self.moment, complete=complete, refused=refused, final=final)
        self.woken = True

    def _done(self, tracked: TrackedJob, step: Step) -> bool:
        """Return whether all of a step could be done. Raises JsonPatchException for a conflict."""
        operations = job_operations(step, tracked.raw, tracked.job)
        if operations is not None:
            self.api.patch_job(tracked.job.uid, operations)
        match step:
            case Pin(pins):
                done = [self.api.patch_pod(one, pod_patch.pin(one, to)) for one, to in pins]
            case Ungate(pods):
                done = [self.api.patch_pod(one, pod_patch.ungate(one)) for one in pods]
            case RequestCheckpoint(pods, number):
                done = [self.api.patch_pod(one, request_patch(one, number)) for one in pods]
            case DeleteUnbound(pods, _) | Release(pods, _) | RestartWorkers(pods, _):
                done = [self._delete(one) for one in pods]
            case _:
                done = []
        return all(done)

    def _delete(self, pod: Pod) -> bool:
        """Delete a pod if it is as kfext has seen it."""
        live = self.api.find(pod, unchanged=True)
        if live is not None:
            self.kubelets.delete(live)
        return live is not None
