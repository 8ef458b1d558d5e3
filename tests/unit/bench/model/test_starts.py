"""The accuracy of kfext's forecasts and of an average of past waits, computed by hand."""

from e2e.bench.model.starts import CASES, Judged, Look, averaged, judged
from kfext.core.queue.expected import Accuracy
from kfext.sim.worlds import random_world


def look(at: float, job: str, *, arrived: float = 0.0, time: float | None = 100.0) -> Look:
    known = time is not None
    return Look(at, job, arrived, time, 80.0 if known else None, 150.0 if known else None)


def test_a_look_is_judged_by_the_start_of_its_job() -> None:
    looks = [look(0, "early"), look(0, "in"), look(0, "late"), look(0, "unknown", time=None)]
    started = {"early": 79.0, "in": 120.0, "late": 151.0, "unknown": 60.0}
    assert judged(looks, started) == [
        Judged(79.0, 21.0, Accuracy.EARLIER, 70.0),
        Judged(120.0, 20.0, Accuracy.WITHIN, 70.0),
        Judged(151.0, 51.0, Accuracy.LATER, 70.0),
        Judged(60.0, None),
    ]


def test_short_waits_and_jobs_that_never_start_do_not_count() -> None:
    assert judged([look(0, "soon"), look(0, "never")], {"soon": 29.0}) == []


def test_an_average_of_past_waits_counts_only_starts_before_the_look() -> None:
    looks = [look(0, "first"), look(150, "second", arrived=50.0), look(350, "third", arrived=10.0)]
    results = list(averaged(looks, {"first": 100.0, "second": 300.0, "third": 900.0}))
    assert [(forecast.job, forecast.time) for forecast in results] == [
        ("second", 50.0),
        ("third", 110.0),
    ]


def test_the_jobs_of_each_case_are_as_its_name_says() -> None:
    rigid, urgent, _, elastic = (change(random_world)(3).jobs for change, _ in CASES.values())
    assert not any(job.bounds for job in rigid)
    assert any(
        job.bounds for seed in range(5) for job in CASES["elastic"][0](random_world)(seed).jobs
    )
    assert {job.priority for job in urgent} <= {"", "urgent"}
    assert len(elastic) == len(rigid)
