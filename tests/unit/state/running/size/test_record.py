"""The record of the number of workers of a job."""

from kfext.core.progress.reported import Progress
from kfext.model.job_state import JobState
from kfext.model.scale_state import MAX_SPEEDS, ScaleState
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.size.record import SizeRecord, restored_record
from kfext.state.running.size.scale import Sizes
from tests.builders import job

GANG = job("TFJob").ps(1).worker(3)


def tracked(state: JobState | None = None) -> TrackedJob:
    return TrackedJob(GANG.raw, GANG.build(), None, state or JobState())


def record_with(state: JobState | None = None, *, requested: int = 3) -> SizeRecord:
    """Return the record of a job with three workers."""
    return restored_record(tracked(state), Sizes(3, 1, 20, requested))


def test_the_speed_of_a_job_is_known_after_thirty_seconds_at_a_size() -> None:
    size = record_with()
    for at, step in ((100.0, 10), (120.0, 50), (130.0, 70)):
        size.measure(Progress(step=step, at=at), restarts=0)
    assert (size.speeds, size.largest) == ({3: 2.0}, 3)


def test_steps_that_go_back_restart_the_measurement() -> None:
    size = record_with()
    for at, step, restarts in ((100.0, 10, 0), (110.0, 5, 1), (140.0, 35, 1)):
        size.measure(Progress(step=step, at=at), restarts=restarts)
    assert size.speeds == {3: 1.0}


def test_a_speed_counts_the_steps_of_one_metric() -> None:
    size = record_with()
    for at, step, metric in (
        (100.0, 10, "accuracy"),
        (130.0, 13, "accuracy"),
        (160.0, 15_000, "loss"),
        (170.0, 15_100, "loss"),
    ):
        size.measure(Progress(step=step, at=at, metric=metric), restarts=0)
    assert size.speeds == {}
    size.measure(Progress(step=15_300, at=190.0, metric="loss"), restarts=0)
    assert size.speeds == {3: 10.0}


def test_the_record_keeps_no_more_speeds_than_the_state_of_a_job() -> None:
    size = record_with(
        JobState(scale=ScaleState(speeds=dict.fromkeys(range(4, 4 + MAX_SPEEDS), 1.0)))
    )
    for at, step in ((100.0, 10), (130.0, 40)):
        size.measure(Progress(step=step, at=at), restarts=0)
    assert len(size.speeds) == MAX_SPEEDS
    assert 3 in size.speeds


def test_the_state_has_the_requested_and_the_assigned_size_after_a_change() -> None:
    state = record_with().state_with(JobState(), 2, cause="guard", downtime=0.0, now=50.0)
    assert (state.requested, state.assigned) == (3, 2)
    assert (state.scale.before, state.scale.changed_at, state.scale.cause) == (3, 50.0, "guard")


def test_the_state_has_no_sizes_after_a_return_to_the_requested_size() -> None:
    before = JobState(requested=2, assigned=3)
    state = record_with(before, requested=2).state_with(
        before, 2, cause="takeBack", downtime=0.0, now=50.0
    )
    assert (state.requested, state.assigned) == (0, 0)
