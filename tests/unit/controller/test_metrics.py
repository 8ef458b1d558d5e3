"""The metrics of the controller."""

import random
from collections.abc import AsyncIterator
from dataclasses import fields, replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kfext.controller.controller import Controller
from kfext.controller.metrics import MAX_JOBS, Metrics, Report, job_series
from kfext.core.progress.reported import GrowthState, Progress, Reported
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.connection import Access, Token
from kfext.kube.events import EventRecorder
from kfext.kube.informer import Informer, Key
from kfext.kube.informer import Metrics as Counters
from kfext.model.verdict import Verdict
from kfext.names import COLOCATION
from kfext.runtime import Scraped
from tests.builders import job
from tests.unit.controller.bench import Bench, gang, running
from tests.unit.state.waiting.test_fairness import Teams

COUNTERS = {
    "relists": "kfext_watch_relists_total",
    "changes": "kfext_watch_changes_total",
    "failures": "kfext_watch_failures_total",
    "undecodable": "kfext_watch_undecodable_total",
    "unobserved": "kfext_watch_unobserved_total",
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client that is never called."""
    async with Client(Access(server="http://nowhere", tls=None, token=Token(str))) as unused:
        yield unused


def test_every_counter_of_an_informer_has_a_metric() -> None:
    assert {field.name for field in fields(Counters)} == COUNTERS.keys()


async def test_the_counters_of_each_watch_are_read_at_each_scrape(client: Client) -> None:
    metrics = Metrics()
    nodes, pods = (
        Informer(client, path, decode=bytes.decode) for path in (paths.nodes(), paths.pods())
    )
    metrics.follow_watches({"nodes": nodes, "pods": pods})
    for number, field in enumerate(COUNTERS, 1):
        setattr(nodes.metrics, field, number)
        setattr(pods.metrics, field, 10 * number)
    for resource, factor in {"nodes": 1, "pods": 10}.items():
        results = [
            metrics.registry.get_sample_value(name, {"resource": resource})
            for name in COUNTERS.values()
        ]
        assert results == [factor * number for number in range(1, len(COUNTERS) + 1)]


async def test_the_objects_of_each_watch_are_counted(client: Client) -> None:
    metrics = Metrics()
    nodes = Informer(client, paths.nodes(), decode=bytes.decode)
    metrics.follow_watches({"nodes": nodes})
    for number in range(3):
        nodes.store.put(Key(uid=f"u-{number}", namespace="", name=f"n-{number}"), "a node")
    nodes.store.remove("u-0")
    assert metrics.registry.get_sample_value("kfext_watch_objects", {"resource": "nodes"}) == 2


async def test_dropped_events_are_counted(client: Client) -> None:
    metrics = Metrics()
    events = EventRecorder(client, reporter="kfext", instance="one")
    metrics.follow_events(lambda: events.dropped)
    about = job().worker().build()
    for number in range(1003):  # nothing takes events from the queue, which holds 1000
        events.record(about, Verdict(f"Reason{number}", "why"), action="Wait")
    assert metrics.registry.get_sample_value("kfext_events_dropped_total") == 3


async def test_a_controller_shows_all_its_watches_and_its_events(client: Client) -> None:
    metrics = Metrics()
    Controller(
        client=client,
        lease_client=client,
        log_client=client,
        identity="one",
        kinds=(),
        metrics=metrics,
    )
    watched = {
        sample.labels["resource"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "kfext_watch_failures_total"
    }
    assert {"nodes", "pods", "namespaces", "trainingplans"} <= watched
    assert metrics.registry.get_sample_value("kfext_events_dropped_total") == 0


JOB = job("TFJob").worker(1).build()
OF_JOB = {"namespace": "team", "job_name": "train", "kind": "TFJob"}
FULL = Reported(
    Progress(metric="loss", value=0.5, step=40, total=100, rate=2.0, remaining=30.0, at=1.0),
    growth=0.25,
    state=GrowthState.NEW,
    cpu=1.5,
)


def series(*reports: Report) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Scraped(lambda: job_series(lambda: reports)))
    return registry


def shown(*reports: Report) -> dict[str, float]:
    """Return the samples of one job, by the name of the metric."""
    samples = [sample for family in series(*reports).collect() for sample in family.samples]
    assert all(sample.labels == OF_JOB for sample in samples)
    return {sample.name: sample.value for sample in samples}


def test_the_series_of_a_job() -> None:
    assert shown((JOB, FULL)) == {
        "kfext_job_step": 40,
        "kfext_job_total_steps": 100,
        "kfext_job_steps_per_second": 2.0,
        "kfext_job_workers": 1,
        "kfext_job_metric_value": 0.5,
        "kfext_job_growth": 0.25,
        "kfext_job_cpu_cores": 1.5,
    }


def test_an_unknown_value_has_no_series_and_zero_has_a_series() -> None:
    stopped = replace(JOB, suspend=True)
    assert shown((stopped, Reported(Progress(value=0.0), growth=0.0))) == {
        "kfext_job_workers": 0,
        "kfext_job_metric_value": 0,
        "kfext_job_growth": 0,
    }


def test_no_text_of_a_log_is_exported() -> None:
    named = replace(FULL, progress=replace(FULL.progress, metric='secret"} 1\nkfext_leading'))
    text = generate_latest(series((JOB, named))).decode()
    assert "secret" not in text
    assert "kfext_leading" not in text


def test_among_many_jobs_the_newest_have_series_in_any_order() -> None:
    reports = [
        (replace(JOB, name=f"job-{at}", uid=f"u-{at}", created=float(at)), FULL)
        for at in range(MAX_JOBS + 50)
    ]
    random.Random(1).shuffle(reports)
    for family in series(*reports).collect():
        names = {sample.labels["job_name"] for sample in family.samples}
        assert names == {f"job-{at}" for at in range(50, MAX_JOBS + 50)}
        assert len(family.samples) == MAX_JOBS


def test_among_jobs_created_together_the_same_jobs_are_shown_each_time() -> None:
    reports = [(replace(JOB, name=f"job-{at}", uid=f"u-{at}"), FULL) for at in range(MAX_JOBS + 1)]
    forward, backward = series(*reports), series(*reversed(reports))
    assert generate_latest(forward) == generate_latest(backward)


@pytest.mark.parametrize("of_jobs", [True, False])
def test_the_series_of_jobs_can_be_left_out(of_jobs: bool) -> None:
    metrics = Metrics(of_jobs=of_jobs)
    metrics.follow_jobs(lambda: [(JOB, FULL)])
    step = metrics.registry.get_sample_value("kfext_job_step", OF_JOB)
    assert step == (40 if of_jobs else None)


def test_the_usage_of_namespaces_is_shown_while_it_orders_the_queue() -> None:
    teams, metrics = Teams(), Metrics()
    metrics.follow(teams.planner)
    teams.runs("job", "a")
    teams.sample(5)
    teams.sample(60)

    def value(namespace: str, of: str) -> float | None:
        labels = {"namespace": namespace, "of": of}
        return metrics.registry.get_sample_value("kfext_namespace_usage_ratio", labels)

    assert value("a", "held") == pytest.approx(0.5)
    assert value("a", "used") == pytest.approx(teams.usage.record.mean("a"))
    assert value("b", "used") is None
    teams.planner.settings.forget_policy("all")
    teams.sample(1)
    assert value("a", "held") is None


# --- the queue, the capacity and the changes ----------------------------------------------------


def labelled(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric, by the values of their labels, without zeros."""
    samples = (sample for family in metrics.registry.collect() for sample in family.samples)
    named = (sample for sample in samples if sample.name == name and sample.value)
    return {tuple(sample.labels.values()): sample.value for sample in named}


async def test_waiting_jobs_are_counted_by_reason_or_as_other(bench: Bench) -> None:
    metrics = Metrics()
    metrics.follow(bench.planner)
    bench.submit(running("runs", "a", cpu="3"))
    required = (COLOCATION, "required")
    for number in range(2):
        bench.submit(gang(f"large-{number}", workers=4).annotated(*required))
    bench.submit(gang("too-large", workers=5).annotated(*required))
    await bench.tick()
    name = "kfext_queue_jobs_by_reason"
    assert labelled(metrics, name) == {("NoRoom",): 2, ("TooBig",): 1}
    bench.cluster.jobs["too-large"].verdict = Verdict("MadeUp", "by a forged state")
    assert labelled(metrics, name) == {("NoRoom",): 2, ("other",): 1}


def test_a_leader_shows_the_capacity_in_cores_and_a_standby_shows_none() -> None:
    teams, metrics = Teams(), Metrics()
    metrics.follow(teams.planner)
    teams.runs("job", "a", cpu="2500m")
    assert labelled(metrics, "kfext_capacity") == {}
    metrics.lead(teams.planner)
    assert labelled(metrics, "kfext_leading") == {(): 1}
    assert labelled(metrics, "kfext_capacity") == {
        ("cpu", "used"): 2.5,
        ("cpu", "free"): 7.5,
        ("memory", "free"): 2**40,
    }


def test_the_outcomes_of_changes_are_counted_and_shown_as_zero_before_the_first() -> None:
    teams, metrics = Teams(), Metrics()
    metrics.follow(teams.planner)
    scale = {"policy": "scale", "outcome": "done"}
    assert metrics.registry.get_sample_value("kfext_changes_total", scale) == 0
    teams.planner.companion.changes["scale", "done"] += 2
    assert labelled(metrics, "kfext_changes_total") == {("scale", "done"): 2}
