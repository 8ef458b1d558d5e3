"""What the monitor does after a change of size was written."""

from dataclasses import dataclass
from typing import cast

import pytest

from kfext.core.lifecycle.steps import RestartWorkers
from kfext.core.progress.reported import Progress, Reported
from kfext.model.job_state import JobState
from kfext.model.moment import Moment
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.reports.progress import JobsProgress
from kfext.state.running.operation import Phase, ScaleOperation
from kfext.state.running.proposal import Cause, Workers
from kfext.state.running.running_job import RunningJob
from kfext.state.running.size.record import record_of, restored_record
from kfext.state.running.size.scale import Sizes, workers_proposal
from kfext.state.running.size.size_monitor import SizeMonitor
from tests.builders import job, pods

ELASTIC = job().worker(6).elastic()


@dataclass
class FakeProgress:
    """The log of one job: the times of its last step and its last read, and its longest silence.

    All are in seconds.
    """

    last_step_at: float
    read_at: float
    longest_silence: float

    def reported(self, _: str) -> Reported:
        return Reported(progress=Progress(step=10, at=self.last_step_at))

    def last_read(self, _: str) -> float:
        return self.read_at

    def followed(self, _: str) -> "FakeProgress":
        return self

    @property
    def pause(self) -> float:
        return self.longest_silence


def scaled_up(*, before: int, requested: int, phase: Phase) -> tuple[RunningJob, ScaleOperation]:
    """Return a job scaled up from `before` to 6 workers at 100 s, and the operation in a phase."""
    tracked = TrackedJob(ELASTIC.raw, ELASTIC.build(), None, JobState())
    running = RunningJob(tracked)
    running.replace_record(size := restored_record(tracked, Sizes(before, 1, 8, requested)))
    change = Workers(Cause.GROWTH, 6)
    proposal = workers_proposal(running.uid, change, "capacity is free")
    size.begin(proposal, change, phase, at=100.0)
    size.sizes = Sizes(6, 1, 8, requested)
    assert size.operation is not None
    return running, size.operation


def monitor(progress: FakeProgress) -> SizeMonitor:
    planner = Planner()
    sizes = planner.companion._size_executor()
    sizes.running.progress = cast(JobsProgress, progress)
    return SizeMonitor(sizes.running, sizes._rescaling)


@pytest.mark.parametrize(
    ("before", "requested", "want"),
    [
        pytest.param(2, 4, 4, id="to the requested size between the two sizes"),
        pytest.param(4, 4, 4, id="to its former size, which is the requested size"),
        pytest.param(5, 4, 5, id="to its former size above the requested size"),
        pytest.param(2, 6, 2, id="to its former size, if the new size is the requested size"),
    ],
)
def test_growth_that_does_not_pay_is_undone(before: int, requested: int, want: int) -> None:
    running, operation = scaled_up(before=before, requested=requested, phase=Phase.TRIAL)
    record_of(running).speeds = {before: 1.0, 6: 1.01}  # a gain of 1 %, less than MIN_GAIN
    now = Moment(wall=200.0, monotonic=200.0)
    undo = monitor(FakeProgress(0.0, 0.0, 0.0)).check_speed(running, operation, now)
    assert undo is not None
    assert undo.change == Workers(Cause.UNDO_GROWTH, want)


@pytest.mark.parametrize(
    ("silence", "replaced"),
    [pytest.param(5.0, True, id="5 s"), pytest.param(0.0, False, id="unknown")],
)
def test_workers_without_a_step_for_140_s_are_replaced_if_the_longest_silence_is(
    silence: float, *, replaced: bool
) -> None:
    running, operation = scaled_up(before=4, requested=4, phase=Phase.MEASURING)
    running_pods = tuple(pods(ELASTIC.build(), bound="a", phase="Running"))
    now = Moment(wall=240.0, monotonic=240.0)
    size_monitor = monitor(FakeProgress(90.0, 230.0, silence))
    result = size_monitor.check_training(running, operation, running_pods, now)
    assert isinstance(result, RestartWorkers) is replaced
    assert record_of(running).operation is operation
