"""Why the workers of a job are left alone."""

import pytest

from kfext.core.scale.stand_down import why_not_scaled
from kfext.model.job import TrainingJob
from tests.builders import job
from tests.unit.core.scale.jobs import dynamic, fixed, led, mirrored, torchrun

METRICS = [{"type": "Resource"}]
KUEUE = job("TFJob").worker(4).queued_by_kueue().build()
CASES: dict[str, tuple[TrainingJob, str]] = {
    "Kueue accounts for its workers": (KUEUE, "Kueue manages it"),
    "its own HorizontalPodAutoscaler scales it": (torchrun(metrics=METRICS), "remove metrics"),
    "it has no workers": (job("TFJob").group("Chief").ps(1).build(), "no workers"),
    "torchrun may not restart its workers": (torchrun(maxRestarts=0), "maxRestarts"),
    "nobody said how often torchrun may": (torchrun(maxRestarts=None), "maxRestarts"),
}


@pytest.mark.parametrize(("of", "why"), CASES.values(), ids=CASES)
def test_a_job_is_left_alone_if(of: TrainingJob, why: str) -> None:
    assert why in why_not_scaled(of)


ELASTIC = {
    "torchrun": torchrun(),
    "with restarts": torchrun(maxRestarts=3, metrics=[]),
    "dynamic": dynamic(),
    "mirrored": mirrored(),
}


@pytest.mark.parametrize("of", ELASTIC.values(), ids=ELASTIC)
def test_any_other_is_not(of: TrainingJob) -> None:
    assert why_not_scaled(of) == ""


@pytest.mark.parametrize("of", [fixed(), led()], ids=["no elasticPolicy", "a Master"])
def test_D6_a_job_that_is_not_elastic_is_left_alone(of: TrainingJob) -> None:
    assert why_not_scaled(of) != ""
