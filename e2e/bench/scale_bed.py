"""The cluster of the scale benchmarks: etcd, API server, kfext and the driver, nobody else.

Scheduler, controller-manager and operator are stopped once kfext is installed: with thousands of
objects they would take most of two cores, and what they do is not measured here. The driver plays
the operator and the webhooks; nodes are objects that nobody runs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from e2e.bench.bed import Bench, with_client
from e2e.testbed import lifecycle
from kfext.kube import paths
from kfext.kube.client import Client

_STOPPED = ("training-operator", "kube-scheduler", "kube-controller-manager")
_WRITES = frozenset({"create", "patch", "apply", "delete"})
_PATIENT = {"bindTimeout": "1h", "createTimeout": "1h"}


@contextmanager
def scale_cluster(name: str) -> Iterator["ScaleBench"]:
    """Run such a cluster for the time of a `with` block; nothing of it remains."""
    with lifecycle.running(f"bench-{name}", fast=True) as bed:
        bench = ScaleBench(bed)
        bench.install()
        # Nobody binds pods here, so kfext must not take them back.
        with_client(bench, _create_policy)
        for process in _STOPPED:
            bed.stop_process(process)
        yield bench


async def _create_policy(client: Client) -> None:
    spec = {"namespaceSelector": {}, "weight": 1, "placement": _PATIENT}
    await client.create(paths.policies(), {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": "patient"},
        "spec": spec,
    })  # fmt: skip


class ScaleBench(Bench):
    """Also reads memory and any metric of the controller."""

    def memory(self) -> float:
        """Return the resident memory of the controller in MiB."""
        lines = Path(f"/proc/{self.controller_pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

    def samples(self) -> Mapping[str, float]:
        """Return every metric of the controller, summed over its labels; none while it starts."""
        url = self.controller.metrics_url
        try:
            page = urllib3.request("GET", url, timeout=5, retries=False).data.decode()
        except urllib3.exceptions.HTTPError:
            return {}
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def counted_writes(self) -> Mapping[str, int]:
        """Return how often the controller has written so far, by resource, the Lease apart."""
        counts: dict[str, int] = {}
        for (verb, resource), count in self.requests().items():
            if verb in _WRITES and resource != "leases":
                counts[resource] = counts.get(resource, 0) + count
        return counts
