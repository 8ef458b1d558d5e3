"""What Prometheus gets of the watches and the events."""

from collections.abc import AsyncIterator
from dataclasses import fields

import pytest

from kfext.controller.controller import Controller
from kfext.controller.metrics import Metrics
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.connection import Access, Token
from kfext.kube.events import EventRecorder, Reference
from kfext.kube.informer import Informer
from kfext.kube.informer import Metrics as Counters

COUNTERS = {
    "relists": "kfext_watch_relists_total",
    "changes": "kfext_watch_changes_total",
    "failures": "kfext_watch_failures_total",
    "undecodable": "kfext_watch_undecodable_total",
    "unobserved": "kfext_watch_unobserved_total",
    "objects": "kfext_watch_objects",
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client that is never asked for anything."""
    async with Client(Access(server="http://nowhere", tls=None, token=Token(str))) as unused:
        yield unused


def test_every_counter_of_an_informer_has_a_metric() -> None:
    assert {one.name for one in fields(Counters)} == COUNTERS.keys()


async def test_the_counters_of_each_watch_are_read_when_they_are_asked_for(client: Client) -> None:
    metrics = Metrics()
    nodes, pods = (
        Informer(client, path, decode=bytes.decode) for path in (paths.nodes(), paths.pods())
    )
    metrics.follow_watches({"nodes": nodes, "pods": pods})
    for number, field in enumerate(COUNTERS, 1):
        setattr(nodes.metrics, field, number)
        setattr(pods.metrics, field, 10 * number)
    for resource, factor in {"nodes": 1, "pods": 10}.items():
        found = [
            metrics.registry.get_sample_value(name, {"resource": resource})
            for name in COUNTERS.values()
        ]
        assert found == [factor * number for number in range(1, len(COUNTERS) + 1)]


async def test_dropped_events_are_counted(client: Client) -> None:
    metrics = Metrics()
    events = EventRecorder(client, reporter="kfext", instance="one")
    metrics.follow_events(lambda: events.dropped)
    about = Reference("v1", "PyTorchJob", "default", "train", "u-1")
    for number in range(1003):  # nothing takes events from the queue, which holds 1000
        events.record(about, reason=f"Reason{number}", message="why", action="Wait")
    assert metrics.registry.get_sample_value("kfext_events_dropped_total") == 3


async def test_a_controller_shows_all_its_watches_and_its_events(client: Client) -> None:
    metrics = Metrics()
    Controller(
        client=client, lease_client=client, log_client=client, identity="one", metrics=metrics
    )
    watched = {
        sample.labels["resource"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "kfext_watch_failures_total"
    }
    assert {"nodes", "pods", "namespaces", "trainingplans"} <= watched
    assert metrics.registry.get_sample_value("kfext_events_dropped_total") == 0
