"""The number of workers at the start of an elastic job."""

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


@pytest.mark.parametrize(("of", "allowed", "want"), FEWEST.values(), ids=FEWEST.keys())
def test_the_fewest_workers(of: JobBuilder, allowed: Range | None, want: int) -> None:
    assert fewest_workers(of.build(), allowed) == want


def test_fewer_workers_leave_the_other_types_as_they_are() -> None:
    of = with_workers(dynamic(6).build(), 2)
    assert {group.type: group.replicas for group in of.groups} == {"Chief": 1, "PS": 1, "Worker": 2}
    assert workers_of(of) == 2


ASKED = {
    "kfext has not changed it": (JobState(), 3),
    "kfext took workers": (JobState(requested=5, assigned=3), 5),
    "another client changed it after kfext": (JobState(requested=5, assigned=4), 3),
}


@pytest.mark.parametrize(("state", "want"), ASKED.values(), ids=ASKED)
def test_the_requested_size(state: JobState, want: int) -> None:
    assert requested_workers(torch(3).build(), state) == want


METRICS = [{"type": "Resource"}]
QUEUED = job("TFJob").worker(4).queued_by_kueue().build()
CASES: dict[str, tuple[TrainingJob, str]] = {
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


@pytest.mark.parametrize(("of", "why"), CASES.values(), ids=CASES)
def test_a_job_is_ineligible_if(of: TrainingJob, why: str) -> None:
    assert why in why_not_scaled(of)


ELASTIC = {
    "torchrun": torchrun(),
    "with restarts": torchrun(maxRestarts=3, metrics=[]),
    "dynamic": dynamic_job(),
    "mirrored": mirrored(),
}


@pytest.mark.parametrize("of", ELASTIC.values(), ids=ELASTIC)
def test_D6_any_other_job_is_scaled(of: TrainingJob) -> None:
    assert why_not_scaled(of) == ""


NOT_ELASTIC: dict[str, tuple[TrainingJob, str]] = {
    "a PyTorchJob without elasticPolicy": (fixed(), "set an elasticPolicy"),
    "a PyTorchJob with a Master": (led(), "Master"),
    "a PyTorchJob that allows a single number of workers": (
        job().worker(4).elastic(minReplicas=4).build(),
        "maxReplicas",
    ),
}


@pytest.mark.parametrize(("of", "why"), NOT_ELASTIC.values(), ids=NOT_ELASTIC)
def test_D6_a_job_that_is_not_elastic_is_not_scaled(of: TrainingJob, why: str) -> None:
    assert why in why_not_scaled(of)
