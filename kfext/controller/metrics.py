"""The controller's metrics for Prometheus, and `guard`, which counts errors of kfext.

Only the series of `job_series` name jobs; an administrator can switch them off.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from heapq import nlargest
from operator import attrgetter
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kfext import names
from kfext.core.elastic import workers_of
from kfext.core.lifecycle.steps import (
    DeleteUnbound,
    Pin,
    Release,
    Replan,
    SaveState,
    Step,
    Suspend,
    Unsuspend,
)
from kfext.core.progress.reported import Reported
from kfext.core.queue.capacity_record import capacity_totals
from kfext.core.queue.usage import UsageRecord
from kfext.kube.informer import Informer
from kfext.model.job import TrainingJob
from kfext.model.quantity import CPU
from kfext.names import PHASES
from kfext.runtime import Scraped, filled
from kfext.state.planner.planner import Planner
from kfext.state.waiting.queue import Queue

_log = structlog.get_logger(__name__)

MAX_JOBS = 1000
"""The most jobs that have series of their own (the newest jobs), and the most namespaces."""
LABELS = ("namespace", "job_name", "kind")
"""The labels of these series; Prometheus itself adds `job` and `instance`."""
_TICK_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_PHASE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_MAX_CLASSES = 20
"""The most priority classes that have a label of their own; all other jobs are counted together."""
_REASONS = {value for name, value in vars(names).items() if name.startswith("REASON_")}
"""The reasons that have a label of their own."""

Report = tuple[TrainingJob, Reported]

ERRORS = Counter("kfext_errors_total", "Errors of kfext that made it skip an object", registry=None)


@contextmanager
def guard(doing: str, **about: object) -> Iterator[None]:
    """Log and count an error of kfext in this block, and continue after it.

    Users write most objects: without a guard, one object could end the controller, and end it again
    after each restart. `doing` and `about` name the block and its object in the log.
    """
    try:
        yield
    except Exception:
        _log.exception("skipped", doing=doing, **about)
        ERRORS.inc()


class Metrics:
    """The controller's metrics, in a registry of their own.

    `of_jobs`: whether each job has series of its own.
    """

    def __init__(self, *, of_jobs: bool = True) -> None:
        self._of_jobs = of_jobs
        registry = self.registry = CollectorRegistry()
        histogram = partial(Histogram, registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.ticks = histogram(
            "kfext_tick_seconds",
            "Duration of each tick of the controller that decided on jobs",
            buckets=_TICK_SECONDS,
        )
        self.decisions = counter("kfext_decisions_total", "Decisions on the next step of a job")
        self.steps = counter(
            "kfext_steps_total", "Steps carried out, by kind and outcome", ("step", "outcome")
        )
        self.plans = counter(
            "kfext_plans_total",
            "Plans written, by cause: Planned for the first plan of a start, else why it changed",
            ("cause",),
        )
        self.gangs = counter(
            "kfext_gangs_total",
            "Gangs by start: born pinned; gated, with the reason; stuck, born pinned but not bound "
            "in time",
            ("how", "why"),
        )
        self.asks = counter(
            "kfext_node_asks_total",
            "Requests for new nodes that began (WaitingForNodes) or got too few (NoNewNodes)",
            ("reason",),
        )
        self.placeholders = gauge(
            "kfext_placeholders",
            "Placeholder pods for new nodes, by whether they are bound to a node",
            ("bound",),
        )
        self.pins = counter("kfext_pins_total", "Pods pinned and ungated")
        self.starts = counter(
            "kfext_expected_starts_total",
            "Jobs that have started, by whether the start was earlier than the expected range, "
            "within it, or later",
            ("was",),
        )
        self.start_errors = histogram(
            "kfext_expected_start_error_seconds",
            "Difference between the expected and the real start of a job, by the expected wait",
            ("lead",),
            buckets=_PHASE_SECONDS,
        )
        self.phases = histogram(
            "kfext_phase_seconds",
            "Time that jobs spent in each phase",
            ("phase",),
            buckets=_PHASE_SECONDS,
        )
        self.requests = counter(
            "kfext_api_requests_total",
            "Requests to the API server; a pin is one patch of a pod",
            ("verb", "resource", "status"),
        )
        self.jobs = gauge("kfext_jobs", "Jobs that kfext handles, by phase", ("phase",))
        self.waiting = gauge(
            "kfext_waiting_jobs", "Jobs that kfext holds or gates; standbys report them too"
        )
        self.claims = gauge("kfext_ledger_claims", "Claims in the ledger")
        self.nodes = gauge("kfext_ledger_nodes", "Nodes in the ledger")
        self.reserved = gauge("kfext_reserved_nodes", "Nodes reserved for the first queued job")
        self.suspects = gauge("kfext_suspect_nodes", "Nodes that are suspect for all namespaces")
        self.outstanding = gauge(
            "kfext_outstanding_pods",
            "Pods that the operator still has to create for jobs that were started",
        )
        self.stalled = gauge("kfext_stalled_jobs", "Running jobs that are stalled")
        self.silence = gauge(
            "kfext_watch_silence_seconds",
            "Time since the last message of the API server on each watch",
            ("resource",),
        )
        self.leading = gauge("kfext_leading", "1 while this process holds the Lease")
        registry.register(ERRORS)

    def count(self, step: Step, *, being_created: bool = False) -> None:
        """Count a step that was written; `being_created`: whether its gang was born pinned."""
        self.steps.labels(step=type(step).__name__, outcome="done").inc()
        if isinstance(step, Unsuspend | Replan):
            self.plans.labels(cause=step.verdict.reason).inc()
        if isinstance(step, Unsuspend):
            self.gangs.labels("gated" if step.gated_by else "born pinned", step.gated_by).inc()
        elif being_created and isinstance(step, DeleteUnbound | Suspend | Release):
            self.gangs.labels("stuck", "").inc()
        if isinstance(step, SaveState) and step.verdict is not None:
            self.asks.labels(reason=step.verdict.reason).inc()
        if isinstance(step, Pin):
            self.pins.inc(len(step.pins))

    def follow(self, planner: Planner) -> None:
        """Read the gauges from the planner at each scrape."""
        cluster, queue = planner.cluster, planner.queue
        self.waiting.set_function(lambda: sum(job.waiting for job in cluster.jobs.values()))
        self.claims.set_function(lambda: len(cluster.ledger))
        self.nodes.set_function(lambda: cluster.ledger.node_count)
        self.suspects.set_function(lambda: len(planner.starts.suspects_of_all))
        self.outstanding.set_function(lambda: cluster.backlog.pods)
        self.reserved.set_function(
            lambda: len(reserved.nodes) if (reserved := queue.reservations.current) else 0
        )
        for bound in (True, False):
            self.placeholders.labels(bound=str(bound).lower()).set_function(
                partial(planner.placeholders.count, bound=bound)
            )
        self.stalled.set_function(lambda: planner.progress.stalled)
        for phase in PHASES:
            self.jobs.labels(phase=phase).set_function(partial(cluster.count, phase))
        self.registry.register(Scraped(partial(_queue_series, queue)))
        self.registry.register(Scraped(partial(_change_series, planner)))
        self.registry.register(Scraped(partial(_preemption_series, planner)))
        self.registry.register(Scraped(partial(_usage_series, queue)))

    def lead(self, planner: Planner) -> None:
        """Show that this process leads, and the capacity; a standby knows no reservation."""
        self.leading.set(1)
        self.registry.register(Scraped(partial(_capacity_series, planner)))

    def follow_watches(self, informers: Mapping[str, Informer[Any]]) -> None:
        """Read the state of the watches, by resource, at each scrape."""
        for resource, informer in informers.items():
            self.silence.labels(resource=resource).set_function(informer.last_event_age)
        self.registry.register(Scraped(partial(_watch_series, informers)))

    def follow_events(self, dropped: Callable[[], int]) -> None:
        """Read the number of events that did not reach the cluster at each scrape."""
        self.registry.register(Scraped(partial(_event_series, dropped)))

    def follow_jobs(self, reports: Callable[[], Iterable[Report]]) -> None:
        """Read the progress of the jobs at each scrape, if jobs have series of their own."""
        if self._of_jobs:
            self.registry.register(Scraped(partial(job_series, reports)))

    def count_request(self, verb: str, resource: str, status: int) -> None:
        """Count one request; for kube.client.Client."""
        self.requests.labels(verb=verb, resource=resource, status=str(status)).inc()


_WATCHED = {
    "relists": "Complete lists of a resource",
    "changes": "Changes received on watches",
    "failures": "Failed lists and watches",
    "undecodable": "Objects that could not be decoded; kfext keeps their last state",
    "unobserved": "Changes that kfext skipped because of an error of its own",
}
"""Counter of an informer -> its help text."""


def _watch_series(informers: Mapping[str, Informer[Any]]) -> Iterator[Metric]:
    """Yield the counters of the informers, which do not depend on Prometheus."""
    objects = GaugeMetricFamily(
        "kfext_watch_objects", "Objects in the informer's cache", labels=("resource",)
    )
    yield filled(objects, (((name,), len(each.store)) for name, each in informers.items()))
    for name, text in _WATCHED.items():
        family = CounterMetricFamily(f"kfext_watch_{name}", text, labels=("resource",))
        count = attrgetter(name)
        yield filled(family, (((key,), count(each.metrics)) for key, each in informers.items()))


def _event_series(dropped: Callable[[], int]) -> Iterator[Metric]:
    """Yield the number of events that were not written, because of errors or a full queue."""
    text = "Events that kfext could not write, because of errors or a full queue"
    yield CounterMetricFamily("kfext_events_dropped", text, value=dropped())


def _queue_series(queue: Queue) -> Iterator[Metric]:
    """Yield length and age of the queue by priority class and reason, labels that vary."""
    length = GaugeMetricFamily(
        "kfext_queue_jobs", "Waiting jobs, by priority class", labels=("priority_class",)
    )
    age = GaugeMetricFamily(
        "kfext_queue_oldest_seconds",
        "Age of the oldest waiting job, by priority class",
        labels=("priority_class",),
    )
    text = "Waiting jobs, by reason"
    reasons = GaugeMetricFamily("kfext_queue_jobs_by_reason", text, labels=("reason",))
    waiting: dict[str, list[float]] = {}
    stopped_by: dict[str, int] = {}
    for tracked in queue.queued():
        reason = tracked.verdict.reason if tracked.verdict else ""
        reason = reason if reason in _REASONS else "other"
        stopped_by[reason] = stopped_by.get(reason, 0) + 1
        name = queue.class_of(tracked.job) or "none"
        label = name if name in waiting or len(waiting) < _MAX_CLASSES else "other"
        waiting.setdefault(label, []).append(tracked.job.created)
    now = time.time()
    yield filled(length, (((name,), len(created)) for name, created in waiting.items()))
    yield filled(age, (((name,), now - min(created)) for name, created in waiting.items()))
    yield filled(reasons, (((reason,), jobs) for reason, jobs in stopped_by.items()))


def _capacity_series(planner: Planner) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "kfext_capacity",
        "Cores, bytes and devices that are used, reserved for the first job in the queue, or free; "
        "cordoned and drained nodes have nothing free",
        labels=("resource", "state"),
    )
    kept = planner.queue.reservations.current
    for resource, state, number in capacity_totals(planner.cluster.ledger, kept):
        family.add_metric((resource, state), number / 1000 if resource == CPU else number)
    yield family


def _change_series(planner: Planner) -> Iterator[Metric]:
    family = CounterMetricFamily(
        "kfext_changes",
        "Changes of running jobs, by policy and outcome: done, restored (kfext undid a change), "
        "refused by the API server, or failed in another way",
        labels=("policy", "outcome"),
    )
    yield filled(family, planner.companion.changes.items())


def _preemption_series(planner: Planner) -> Iterator[Metric]:
    """Yield the number of jobs stopped for other jobs, and the work that they must repeat."""
    preempted = planner.companion.preempted
    jobs = CounterMetricFamily(
        "kfext_preemptions",
        "Jobs stopped for a job of higher priority: answered, after a checkpoint; late, without a "
        "checkpoint in time; none, without waiting for one",
        labels=("asked",),
    )
    asked = ("answered", "late", "none")
    yield filled(jobs, (((how,), preempted.asked[how]) for how in asked))
    yield CounterMetricFamily(
        "kfext_preempted_work_seconds",
        "Training since the last checkpoint, which jobs stopped for others must repeat",
        value=preempted.work,
    )


def _usage_series(queue: Queue) -> Iterator[Metric]:
    """Yield the highest usages of namespaces, if the queue is ordered by usage."""
    record = queue.usage.record if queue.usage.on else UsageRecord()
    text = "Fraction of the cluster that a namespace holds now (held), or held on average (used)"
    family = GaugeMetricFamily("kfext_namespace_usage_ratio", text, labels=("namespace", "of"))
    most = nlargest(MAX_JOBS, record.namespaces, key=record.mean)
    held = [((name, "held"), record.namespaces[name].held) for name in most]
    yield filled(family, [*held, *(((name, "used"), record.mean(name)) for name in most)])


_SERIES: dict[str, tuple[str, Callable[[TrainingJob, Reported], float | None]]] = {
    "kfext_job_step": ("The last step of a job", lambda _, report: report.progress.step),
    "kfext_job_total_steps": (
        "The number of steps of a job, if its log shows it",
        lambda _, report: report.progress.total,
    ),
    "kfext_job_steps_per_second": (
        "Steps of a job per second",
        lambda _, report: report.progress.rate,
    ),
    "kfext_job_workers": (
        "The number of workers of a job; 0 while it is stopped",
        lambda job, _: 0 if job.suspend or job.finished else workers_of(job),
    ),
    "kfext_job_metric_value": (
        "The last value of the metric that kfext follows in a job",
        lambda _, report: report.progress.value,
    ),
    "kfext_job_growth": (
        "Growth efficiency of a job in the last interval",
        lambda _, report: report.growth,
    ),
    "kfext_job_cpu_cores": ("Cores that all pods of a job use", lambda _, report: report.cpu),
}


def job_series(reports: Callable[[], Iterable[Report]]) -> Iterator[Metric]:
    """Yield the progress of the jobs: the only series with the names of jobs.

    Only the newest jobs have series, one of each kind, so that their number is bounded. No label
    has text from a log, such as the name of a metric.
    """
    newest = [
        ((job.namespace, job.name, job.kind.name), job, report)
        for job, report in nlargest(MAX_JOBS, reports(), key=_age_order)
    ]
    for name, (text, value_of) in _SERIES.items():
        family = GaugeMetricFamily(name, text, labels=LABELS)
        yield filled(family, ((labels, value_of(job, report)) for labels, job, report in newest))


def _age_order(report: Report) -> tuple[float, str]:
    """Order by the time of creation; ties are broken the same way at each scrape."""
    job, _ = report
    return (job.created, job.uid)
