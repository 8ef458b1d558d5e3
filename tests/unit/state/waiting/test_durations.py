"""The estimated durations of jobs in a simulated cluster."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kfext.core.progress.reported import LATE
from kfext.core.queue.duration import USUAL_SECONDS
from kfext.core.queue.order import PATIENCE
from kfext.model.job import TrainingJob
from kfext.model.parameters import Queueing, QueueOrder
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.sim.jobs import JobSpec
from kfext.state.waiting.durations import DurationEstimates
from tests.unit.sim.bed import ANEW, LONG, Bed, scaled_bed, sizes
from tests.unit.sim.bed import GANG as BOUNDED

GANG = replace(BOUNDED, deadline=None)

FIRST = replace(GANG, name="train-1", arrives=1.0, steps=200, trains="train")
AGAIN = replace(FIRST, name="train-2", arrives=400.0)
OTHER = replace(AGAIN, name="other", trains="other")


def durations(bed: Bed) -> DurationEstimates:
    return bed.planner.queue.durations


def seen(bed: Bed, spec: JobSpec) -> TrainingJob:
    return bed.planner.cluster.jobs[spec.uid].job


def remaining(bed: Bed, spec: JobSpec) -> float:
    return durations(bed).remaining(seen(bed, spec), now=bed.clock.wall)


def test_a_job_takes_as_long_as_the_ended_jobs_of_its_series() -> None:
    bed = Bed(FIRST, AGAIN, OTHER).at(401)
    took = seen(bed, FIRST).run_seconds
    assert took == pytest.approx(118, abs=5)
    assert remaining(bed, AGAIN) == pytest.approx(took, abs=2)
    assert remaining(bed, OTHER) == pytest.approx(USUAL_SECONDS, abs=2)


def test_a_job_without_a_series_takes_the_median_duration_of_its_namespace() -> None:
    long = [replace(FIRST, name=f"long-{n}", trains=f"long-{n}", steps=2000) for n in range(3)]
    bed = Bed(*long, replace(OTHER, arrives=3500.0), a=8000).at(3501)
    took = [seen(bed, spec).run_seconds or 0.0 for spec in long]
    assert remaining(bed, OTHER) == pytest.approx(sorted(took)[1], abs=2)
    position = bed.planner.queue.key(bed.planner.cluster.jobs[OTHER.uid])[2]
    assert position == pytest.approx(seen(bed, OTHER).created + PATIENCE * sorted(took)[1], abs=32)
    elsewhere = replace(seen(bed, OTHER), namespace="new")
    assert durations(bed).usual(elsewhere.namespace) == pytest.approx(sorted(took)[1], abs=2)
    for spec in long:
        bed.api.delete_job(bed.job(spec.name))
    assert durations(bed.after(5)).usual("team") == USUAL_SECONDS


def test_deleted_jobs_do_not_count() -> None:
    bed = Bed(FIRST, AGAIN).at(401)
    bed.api.delete_job(bed.job("train-1"))
    bed.after(5)
    assert durations(bed).typical(seen(bed, AGAIN)) is None


def test_a_job_that_kfext_stopped_does_not_count_for_its_series() -> None:
    stopped = replace(ANEW, name="train-1", steps=6000, trains="train")
    bed = scaled_bed(stopped, BOUNDED).at(3000)
    assert seen(bed, stopped).run_seconds is not None
    assert sizes(bed, "train-1")
    assert durations(bed).typical(seen(bed, stopped)) is None


def test_the_remaining_time_follows_from_progress_rather_than_from_the_series() -> None:
    longer = replace(AGAIN, steps=2000)
    bed = Bed(FIRST, longer).at(460)
    left = (2000 - bed.job("train-2").training.done) / 2
    assert remaining(bed, longer) == pytest.approx(left, rel=0.1)


def test_the_expected_end_of_a_job_without_a_deadline_follows_from_its_progress() -> None:
    bed = Bed(replace(GANG, steps=400)).at(160)
    job = seen(bed, GANG)
    left = durations(bed).remaining(job, now=bed.clock.wall)
    assert durations(bed).expected_end(job, now=bed.clock.wall) == pytest.approx(
        bed.clock.wall + LATE * left
    )
    assert durations(bed).expected_end(replace(job, suspend=True), now=bed.clock.wall) is None


def test_a_job_that_is_silent_long_after_its_expected_end_has_no_known_progress() -> None:
    bed = Bed(replace(GANG, steps=400)).at(160)
    job, now = seen(bed, GANG), bed.clock.wall
    left = durations(bed).remaining(job, now=now)
    assert durations(bed).remaining(job, now=now + left / 2) == pytest.approx(left / 2, abs=1)
    later = now + LATE * left + 120
    assert durations(bed).expected_end(job, now=later) is None
    assert durations(bed).shown_remaining(job, now=later) is None
    assert durations(bed).remaining(job, now=later) == pytest.approx(later - job.started), (
        "its run time"
    )
    stopped = replace(job, suspend=True)
    assert durations(bed).remaining(stopped, now=later) == pytest.approx(left, abs=30), (
        "it is not late"
    )


def test_an_end_that_follows_from_progress_is_shown_as_an_estimate() -> None:
    runs = replace(GANG, name="runs", arrives=1.0, workers=3, steps=6000)
    head = replace(runs, name="head", arrives=10.0, workers=4)
    late = replace(runs, name="late", arrives=400.0, workers=1)
    bed = Bed(runs, head, late, a=4 * runs.cpu).at(420)
    verdict = bed.planner.cluster.jobs[late.uid].verdict
    assert verdict is not None
    assert "which waits for PyTorchJob team/runs until about " in verdict.message


def test_the_ends_of_running_jobs_are_estimated_once_in_a_tick() -> None:
    bed = Bed(replace(GANG, steps=400)).at(160)
    queue, tracked = bed.planner.queue, bed.planner.cluster.jobs[GANG.uid]

    def ends(now: float) -> Mapping[str, float]:
        return queue.context(tracked, now=now).ends()

    queue.begin_tick(now=bed.clock.wall)
    first = ends(bed.clock.wall)
    assert list(first) == [GANG.uid]
    assert ends(bed.clock.wall) is first
    queue.begin_tick(now=bed.clock.wall)
    assert ends(bed.clock.wall) is not first


ACTS = {"scale": PolicyChoice(Mode.ACT)}
OFF = {"scale": PolicyChoice(Mode.OFF)}
COUNTS: dict[str, tuple[JobSpec, TrainingPolicy, bool]] = {
    "the duration of an elastic job counts": (LONG, TrainingPolicy("p", companion=ACTS), True),
    "the duration of a rigid job does not count": (
        GANG,
        TrainingPolicy("p", companion=ACTS),
        False,
    ),
    "the duration of an elastic job does not count if the policy is off": (
        LONG,
        TrainingPolicy("p", companion=OFF),
        False,
    ),
    "the duration of any job counts if the shortest job comes first": (
        GANG,
        TrainingPolicy("p", companion=OFF, queue=Queueing(QueueOrder.SHORTEST)),
        True,
    ),
}


@pytest.mark.parametrize(("spec", "policy", "counts"), COUNTS.values(), ids=COUNTS)
def test_whether_the_duration_of_a_job_counts_for_its_place_in_the_queue(
    spec: JobSpec, policy: TrainingPolicy, counts: bool
) -> None:
    early = replace(spec, name="early-1", arrives=1.0, steps=40, trains="early")
    late = replace(early, name="early-2", arrives=200.0)
    bed = Bed(early, late, policy=policy).at(201)
    tracked = bed.planner.cluster.jobs[late.uid]
    expected = tracked.job.created + PATIENCE * USUAL_SECONDS
    assert (bed.planner.queue.key(tracked)[2] != expected) is counts
