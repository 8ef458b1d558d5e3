"""With how many workers an elastic job may start, and why a job is not scaled."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kfext.core.elastic import (
    fewest_workers,
    requested_workers,
    why_not_scaled,
    with_workers,
    workers_of,
)
from kfext.core.settings.values import Range
from kfext.model.gpu import GpuShare
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from tests.builders import JobBuilder, job
from tests.unit.state.running.elastic_jobs import dynamic as dynamic_job
from tests.unit.state.running.elastic_jobs import fixed, led, mirrored, torchrun


def torch(workers: int, **policy: int) -> JobBuilder:
    return job().worker(workers, cpu="1").held().elastic(**policy)


def dynamic(workers: int) -> JobBuilder:
    builder = job("TFJob").ps(1, cpu="1").group("Chief", 1, cpu="1").worker(workers, cpu="1").held()
    builder.raw["spec"]["enableDynamicWorker"] = True
    return builder


FEWEST: Mapping[str, tuple[JobBuilder, Range | None, int]] = {
    "the minimum of the setting": (torch(8), Range(3, 8), 3),
    "at least what the job itself needs": (torch(8, minReplicas=5), Range(3, 8), 5),
    "a chief counts as one of the training pods, a PS does not": (dynamic(6), Range(3, 8), 2),
    "one worker at least": (dynamic(6), Range(1, 8), 1),
    "never more than its requested size": (torch(2), Range(4, 8), 2),
    "all without the setting": (torch(8), None, 8),
    "all of a job that cannot run with fewer": (job().worker(8).held(), Range(3, 8), 8),
    "a TFJob with pods that read the number when they start": (
        job("TFJob").ps(1).worker(8).held(),
        Range(3, 8),
        3,
    ),
    "all of a job with a Master, which fixes the ranks": (torch(8).master(), Range(3, 9), 8),
}


@pytest.mark.parametrize(("builder", "allowed", "want"), FEWEST.values(), ids=FEWEST.keys())
def test_the_fewest_workers(builder: JobBuilder, allowed: Range | None, want: int) -> None:
    assert fewest_workers(builder.build(), allowed) == want


def test_fewer_workers_leave_the_other_types_as_they_are() -> None:
    fewer = with_workers(dynamic(6).build(), 2)
    replicas = {group.type: group.replicas for group in fewer.groups}
    assert replicas == {"Chief": 1, "PS": 1, "Worker": 2}
    assert workers_of(fewer) == 2


SIZES = {
    "kfext has not changed it": (JobState(), 3),
    "kfext removed workers": (JobState(requested=5, assigned=3), 5),
    "another client changed it after kfext": (JobState(requested=5, assigned=4), 3),
}


@pytest.mark.parametrize(("state", "want"), SIZES.values(), ids=SIZES)
def test_the_requested_size(state: JobState, want: int) -> None:
    assert requested_workers(torch(3).build(), state) == want


METRICS = [{"type": "Resource"}]
QUEUED = job("TFJob").worker(4).queued_by_kueue().build()
OBSTACLES: dict[str, tuple[TrainingJob, str]] = {
    "Kueue accounts for its workers": (QUEUED, "Kueue manages it"),
    "its own HorizontalPodAutoscaler scales it": (torchrun(metrics=METRICS), "remove metrics"),
    "it shares GPUs": (
        replace(torchrun(), groups=(replace(torchrun().groups[0], share=GpuShare(50)),)),
        "keeps its slots",
    ),
    "it has no workers": (job("TFJob").group("Chief").ps(1).build(), "no workers"),
    "torchrun may not restart its workers": (torchrun(maxRestarts=0), "maxRestarts"),
    "the number of torchrun's restarts is unset": (torchrun(maxRestarts=None), "maxRestarts"),
}


@pytest.mark.parametrize(("training_job", "why"), OBSTACLES.values(), ids=OBSTACLES)
def test_a_job_is_not_scaled_if(training_job: TrainingJob, why: str) -> None:
    assert why in why_not_scaled(training_job)


ELASTIC = {
    "torchrun": torchrun(),
    "with restarts": torchrun(maxRestarts=3, metrics=[]),
    "dynamic": dynamic_job(),
    "mirrored": mirrored(),
}


@pytest.mark.parametrize("training_job", ELASTIC.values(), ids=ELASTIC)
def test_D6_an_elastic_job_may_be_scaled(training_job: TrainingJob) -> None:
    assert why_not_scaled(training_job) == ""


NOT_ELASTIC: dict[str, tuple[TrainingJob, str]] = {
    "a PyTorchJob without elasticPolicy": (fixed(), "set an elasticPolicy"),
    "a PyTorchJob with a Master": (led(), "Master"),
    "a PyTorchJob that allows a single number of workers": (
        job().worker(4).elastic(minReplicas=4).build(),
        "maxReplicas",
    ),
}


@pytest.mark.parametrize(("training_job", "why"), NOT_ELASTIC.values(), ids=NOT_ELASTIC)
def test_D6_a_job_that_is_not_elastic_is_not_scaled(training_job: TrainingJob, why: str) -> None:
    assert why in why_not_scaled(training_job)
