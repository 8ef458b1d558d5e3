"""What Prometheus gets of the progress of jobs."""

import random
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kfext.controller.job_metrics import MOST_JOBS, JobCollector, Report
from kfext.controller.metrics import Metrics
from kfext.core.progress.reported import GrowthState, Progress, Reported
from tests.builders import job

JOB = job("TFJob").worker(1).build()
LABELS = {"namespace": "team", "job_name": "train", "kind": "TFJob"}
FULL = Reported(
    Progress(metric="loss", value=0.5, step=40, total=100, rate=2.0, left=30.0, at=1.0),
    growth=0.25,
    state=GrowthState.NEW,
    cpu=1.5,
)


def registry(*reports: Report) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(JobCollector(lambda: iter(reports)))
    return made


def shown(*reports: Report) -> dict[str, float]:
    """The samples of one job, by their names."""
    samples = [one for family in registry(*reports).collect() for one in family.samples]
    assert all(one.labels == LABELS for one in samples)
    return {one.name: one.value for one in samples}


def test_the_series_of_a_job() -> None:
    assert shown((JOB, FULL)) == {
        "kfext_job_step": 40,
        "kfext_job_total_steps": 100,
        "kfext_job_steps_per_second": 2.0,
        "kfext_job_metric_value": 0.5,
        "kfext_job_growth": 0.25,
        "kfext_job_cpu_cores": 1.5,
    }


def test_what_is_not_known_has_no_series_and_zero_has_one() -> None:
    assert shown((JOB, Reported(Progress(value=0.0), growth=0.0))) == {
        "kfext_job_metric_value": 0,
        "kfext_job_growth": 0,
    }


def test_no_text_of_a_log_is_exported() -> None:
    named = replace(FULL, progress=replace(FULL.progress, metric='secret"} 1\nkfext_leading'))
    text = generate_latest(registry((JOB, named))).decode()
    assert "secret" not in text
    assert "kfext_leading" not in text


def test_of_many_jobs_the_newest_have_series_whatever_their_order() -> None:
    reports = [
        (replace(JOB, name=f"job-{at}", uid=f"u-{at}", created=float(at)), FULL)
        for at in range(MOST_JOBS + 50)
    ]
    random.Random(1).shuffle(reports)
    for family in registry(*reports).collect():
        names = {sample.labels["job_name"] for sample in family.samples}
        assert names == {f"job-{at}" for at in range(50, MOST_JOBS + 50)}
        assert len(family.samples) == MOST_JOBS


def test_of_jobs_that_were_created_together_the_same_ones_are_shown_each_time() -> None:
    reports = [(replace(JOB, name=f"job-{at}", uid=f"u-{at}"), FULL) for at in range(MOST_JOBS + 1)]
    one, other = registry(*reports), registry(*reversed(reports))
    assert generate_latest(one) == generate_latest(other)


@pytest.mark.parametrize("of_jobs", [True, False])
def test_the_series_of_jobs_can_be_left_out(of_jobs: bool) -> None:
    metrics = Metrics(of_jobs=of_jobs)
    metrics.follow_jobs(lambda: [(JOB, FULL)])
    step = metrics.registry.get_sample_value("kfext_job_step", LABELS)
    assert step == (40 if of_jobs else None)
