"""What the controller tells Prometheus. No label has the name of a job or a pod."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kfext.controller.cluster import Cluster
from kfext.names import PHASES

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)


class Metrics:
    """The controller's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decision = Histogram(
            "kfext_decision_seconds",
            "Time to decide on the next step of one job",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.steps = Counter(
            "kfext_steps_total",
            "Steps carried out, by kind and outcome",
            ("step", "outcome"),
            registry=self.registry,
        )
        self.requests = Counter(
            "kfext_api_requests_total",
            "Requests to the API server",
            ("verb", "resource", "status"),
            registry=self.registry,
        )
        self.jobs = Gauge(
            "kfext_jobs", "Jobs that kfext handles, by phase", ("phase",), registry=self.registry
        )
        self.claims = Gauge("kfext_ledger_claims", "Claims on the ledger", registry=self.registry)
        self.leading = Gauge(
            "kfext_leading", "1 while this process holds the Lease", registry=self.registry
        )

    def follow(self, cluster: Cluster) -> None:
        """Read the gauges from the mirror whenever somebody asks."""
        self.claims.set_function(lambda: len(cluster.ledger))
        for phase in PHASES:
            self.jobs.labels(phase=phase).set_function(partial(cluster.count, phase))

    def observe_request(self, verb: str, resource: str, status: int, seconds: float) -> None:
        """Count one request; for kube.client.Client."""
        self.requests.labels(verb=verb, resource=resource, status=str(status)).inc()
