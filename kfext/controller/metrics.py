"""The controller's metrics for Prometheus.

No label here has the name of a job or a pod. Those of the collector in `job_metrics` have the names
of jobs, and an administrator can leave it out.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kfext.controller.guard import ERRORS
from kfext.controller.job_metrics import JobCollector, Report
from kfext.core.lifecycle.steps import Pin, Replan, Step, Unsuspend
from kfext.core.queue.order import priority_class
from kfext.kube.informer import Informer
from kfext.names import PHASES
from kfext.state.planner import Planner
from kfext.state.queue import Queue

_TICK_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_PHASE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_MOST_CLASSES = 20
"""How many priority classes have their own label; jobs of the others are counted together."""


class Metrics:
    """The controller's metrics, in a registry of their own.

    `of_jobs`: whether there are series of each job.
    """

    def __init__(self, *, of_jobs: bool = True) -> None:
        self._of_jobs = of_jobs
        registry = self.registry = CollectorRegistry()
        self.ticks = Histogram(
            "kfext_tick_seconds",
            "Time of one turn of the loop in which jobs were decided on",
            buckets=_TICK_SECONDS,
            registry=registry,
        )
        self.decisions = Counter(
            "kfext_decisions_total", "Decisions on the next step of a job", registry=registry
        )
        self.steps = Counter(
            "kfext_steps_total",
            "Steps carried out, by kind and outcome",
            ("step", "outcome"),
            registry=registry,
        )
        self.plans = Counter(
            "kfext_plans_total",
            "Plans written, by cause: Planned is the first, all others are re-plans",
            ("cause",),
            registry=registry,
        )
        self.pins = Counter("kfext_pins_total", "Pods pinned and ungated", registry=registry)
        self.phases = Histogram(
            "kfext_phase_seconds",
            "Time that jobs spent in a phase before the next",
            ("phase",),
            buckets=_PHASE_SECONDS,
            registry=registry,
        )
        self.requests = Counter(
            "kfext_api_requests_total",
            "Requests to the API server; patches of pods by pins are the writes per pod",
            ("verb", "resource", "status"),
            registry=registry,
        )
        self.jobs = Gauge(
            "kfext_jobs", "Jobs that kfext handles, by phase", ("phase",), registry=registry
        )
        self.waiting = Gauge(
            "kfext_waiting_jobs",
            "Jobs that kfext holds or gates; a standby reports it too",
            registry=registry,
        )
        self.claims = Gauge("kfext_ledger_claims", "Claims on the ledger", registry=registry)
        self.nodes = Gauge("kfext_ledger_nodes", "Nodes on the ledger", registry=registry)
        self.reserved = Gauge(
            "kfext_reserved_nodes", "Nodes reserved for the head of the queue", registry=registry
        )
        self.outstanding = Gauge(
            "kfext_outstanding_pods",
            "Pods that the operator still has to create for jobs that were started",
            registry=registry,
        )
        self.silence = Gauge(
            "kfext_watch_silence_seconds",
            "Time since the API server last sent anything on a watch",
            ("resource",),
            registry=registry,
        )
        self.leading = Gauge(
            "kfext_leading", "1 while this process holds the Lease", registry=registry
        )

        registry.register(ERRORS)

    def count(self, step: Step) -> None:
        """Count a step that was written."""
        self.steps.labels(step=type(step).__name__, outcome="done").inc()
        if isinstance(step, Unsuspend | Replan):
            self.plans.labels(cause=step.verdict.reason).inc()
        if isinstance(step, Pin):
            self.pins.inc(len(step.pins))

    def follow(self, planner: Planner) -> None:
        """Read the gauges from the planner at each scrape."""
        cluster, queue = planner.cluster, planner.queue
        self.waiting.set_function(lambda: sum(one.waiting for one in cluster.jobs.values()))
        self.claims.set_function(lambda: len(cluster.ledger))
        self.nodes.set_function(lambda: cluster.ledger.node_count)
        self.outstanding.set_function(lambda: cluster.backlog.pods)
        self.reserved.set_function(
            lambda: len(kept.nodes) if (kept := queue.reservations.kept) else 0
        )
        for phase in PHASES:
            self.jobs.labels(phase=phase).set_function(partial(cluster.count, phase))
        self.registry.register(_QueueCollector(queue))

    def follow_watches(self, informers: Mapping[str, Informer[Any]]) -> None:
        """Read the state of the watches, by resource, at each scrape."""
        for resource, informer in informers.items():
            self.silence.labels(resource=resource).set_function(informer.last_event_age)
        self.registry.register(_WatchCollector(informers))

    def follow_events(self, dropped: Callable[[], int]) -> None:
        """Read how many events did not reach the cluster at each scrape."""
        self.registry.register(_DroppedEvents(dropped))

    def follow_jobs(self, reports: Callable[[], Iterable[Report]]) -> None:
        """Read the progress of the jobs at each scrape, unless there are no series of jobs."""
        if self._of_jobs:
            self.registry.register(JobCollector(reports))

    def observe_request(self, verb: str, resource: str, status: int, seconds: float) -> None:
        """Count one request; for kube.client.Client."""
        self.requests.labels(verb=verb, resource=resource, status=str(status)).inc()


_WATCHED = {
    "relists": "Times that the whole collection was listed",
    "changes": "Changes that arrived on watches",
    "failures": "Lists and watches that failed",
    "undecodable": "Objects that could not be decoded and kept their last value",
    "unobserved": "Changes that were left aside because of an error of kfext",
}
"""Counter of an informer -> what it counts."""


class _WatchCollector(Collector):
    """The counters of the informers, which know nothing of Prometheus."""

    def __init__(self, informers: Mapping[str, Informer[Any]]) -> None:
        self._informers = informers

    def collect(self) -> Iterable[Metric]:
        objects = GaugeMetricFamily(
            "kfext_watch_objects", "Objects in the copy of a collection", labels=("resource",)
        )
        for resource, informer in self._informers.items():
            objects.add_metric((resource,), informer.metrics.objects)
        yield objects
        for name, text in _WATCHED.items():
            counter = CounterMetricFamily(f"kfext_watch_{name}", text, labels=("resource",))
            for resource, informer in self._informers.items():
                counter.add_metric((resource,), getattr(informer.metrics, name))
            yield counter


class _DroppedEvents(Collector):
    """Events that were not written, because of an error or of too many at once."""

    def __init__(self, dropped: Callable[[], int]) -> None:
        self._dropped = dropped

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "kfext_events_dropped",
            "Events on objects that did not reach the cluster",
            value=self._dropped(),
        )


class _QueueCollector(Collector):
    """Length and age of the queue by priority class: the classes come and go."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def collect(self) -> Iterable[GaugeMetricFamily]:
        length = GaugeMetricFamily(
            "kfext_queue_jobs", "Jobs that wait, by priority class", labels=("priority_class",)
        )
        age = GaugeMetricFamily(
            "kfext_queue_oldest_seconds",
            "Age of the oldest job that waits, by priority class",
            labels=("priority_class",),
        )
        waiting: dict[str, list[float]] = {}
        for tracked in self._queue.queued():
            name = priority_class(tracked.job, self._queue.classes).name or "none"
            own = name if name in waiting or len(waiting) < _MOST_CLASSES else "other"
            waiting.setdefault(own, []).append(tracked.job.created)
        for name, created in waiting.items():
            length.add_metric((name,), len(created))
            age.add_metric((name,), time.time() - min(created))
        return (length, age)
