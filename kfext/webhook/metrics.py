"""The metrics of the webhooks. No label has names of jobs or namespaces, so series stay few."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge, Histogram

PATCHED, UNCHANGED, REFUSED = "patched", "unchanged", "refused"
FAILED = "failed"
"""kfext raised an error: the object was admitted unchanged."""
REJECTED = "rejected"
"""The body was not a review: answered with 4xx."""

_BUCKETS = (0.00025, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.025, 0.1, 0.5, 2.0)


class Metrics:
    """The metrics of one webhook process, in a registry of their own."""

    def __init__(self, *, synced: Callable[[], bool], controller_alive: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "kfext_webhook_review_duration_seconds",
            "Time from the last byte of a review to its answer.",
            labelnames=("kind", "outcome"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._flag(
            "kfext_webhook_synced",
            "1 once namespaces, policies and the Lease have been read",
            synced,
        )
        self._flag(
            "kfext_webhook_controller_alive",
            "1 while the controller renews its Lease; while 0, nothing is suspended or gated",
            controller_alive,
        )

    def observe(self, *, kind: str, outcome: str, seconds: float) -> None:
        """Count one review; `kind` is `job` or `pod`."""
        self._seconds.labels(kind, outcome).observe(seconds)

    def _flag(self, name: str, words: str, read: Callable[[], bool]) -> None:
        Gauge(name, words, registry=self.registry).set_function(lambda: float(read()))
