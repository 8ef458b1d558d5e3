"""The cluster that benchmarks share: 200 fake nodes, fast components, kfext as two processes."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from e2e.harness.kfext_process import Kfext
from e2e.harness.processes import COMMAND, ControllerProcess
from e2e.testbed import lifecycle
from e2e.testbed.cluster import Testbed
from kfext.kube import paths
from kfext.kube.client import Client

T = TypeVar("T")
NODES = 200
_SYSTEM = "system:serviceaccount:kfext-system"
_STOPPED = ("training-operator", "kube-scheduler", "kube-controller-manager")
_WRITES = frozenset({"create", "patch", "apply", "delete"})
_PATIENT = {"bindTimeout": "1h", "createTimeout": "1h"}


class _Direct(ControllerProcess):
    """A controller that uses the API server without a proxy, and logs as in production."""

    def __init__(self, testbed: Testbed, config: Path) -> None:
        super().__init__(testbed, ssl.create_default_context(), name="kfext-controller")
        self._config = config

    def launch(self, *, environment: Mapping[str, str]) -> None:
        self._process = self._testbed.start_process(
            [
                *(str(COMMAND), "controller", "--log-level=info"),
                f"--kubeconfig={self._config}",
                f"--probe-port={self._probe_port}",
            ],
            name=self.name,
            environment=environment,
        )

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self._probe_port}/metrics"


class Bench(Kfext):
    """kfext as installed by the harness, but its controller uses the API server without a proxy."""

    controller: _Direct

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        config = testbed.pki.kubeconfig(
            testbed.folder / "kubeconfigs" / "kfext-controller-direct.yaml",
            server=testbed.server,
            user=f"{_SYSTEM}:kfext-controller",
            groups=("system:serviceaccounts", "system:serviceaccounts:kfext-system"),
        )
        self.controller = _Direct(testbed, config)

    @property
    def controller_pid(self) -> int:
        if (pid := self.controller.pid) is None:
            raise RuntimeError("the controller does not run")
        return pid

    def controller_cpu(self) -> float:
        return cpu_seconds(self.controller_pid)

    @property
    def reviews_url(self) -> str:
        return f"https://127.0.0.1:{self.webhook.port}"

    def requests(self) -> dict[tuple[str, ...], int]:
        """Return the number of the controller's requests so far, by verb and resource."""
        return self.counted("kfext_api_requests_total", "verb", "resource")

    def counted(self, name: str, *labels: str) -> dict[tuple[str, ...], int]:
        """Return the value of a counter of the controller for each combination of label values."""
        page = urllib3.request("GET", self.controller.metrics_url, timeout=5).data.decode()
        counts: dict[tuple[str, ...], int] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == name:
                    key = tuple(sample.labels[label] for label in labels)
                    counts[key] = counts.get(key, 0) + int(sample.value)
        return counts


def cpu_seconds(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def kfext_cluster() -> Iterator[Bench]:
    """Run a testbed with kfext during a `with` block, and remove it afterwards."""
    with lifecycle.running("bench", fake_nodes=NODES, fast=True) as bed:
        bench = Bench(bed)
        bench.install()
        yield bench


def with_client(bench: Bench, measure: Callable[[Client], Awaitable[T]]) -> T:
    """Run `measure` with an administrator's client; Ctrl-C and SIGTERM cancel it."""

    async def run() -> T:
        async with await Client.connect(bench.testbed.kubeconfig) as client:
            return await measure(client)

    return asyncio.run(run())


@contextmanager
def scale_cluster(name: str) -> Iterator["ScaleBench"]:
    """Run a cluster without webhooks during a `with` block, and remove it afterwards.

    The driver replaces the webhooks, so that they do not compete for the CPU.
    """
    with lifecycle.running(f"bench-{name}", fast=True) as bed:
        bench = ScaleBench(bed)
        bench.install()
        # Nothing binds pods here, so kfext must not give up on them.
        with_client(bench, _create_policy)
        for process in _STOPPED:
            bed.stop_process(process)
        bench.remove_webhooks()
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
    """A `Bench` that also reads the controller's memory and all of its metrics."""

    def memory(self) -> float:
        """Return the resident memory of the controller in MiB."""
        lines = Path(f"/proc/{self.controller_pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

    def samples(self) -> Mapping[str, float]:
        """Return every metric of the controller, summed over its labels; empty while it starts."""
        url = self.controller.metrics_url
        try:
            page = urllib3.request("GET", url, timeout=5, retries=False).data.decode()
        except urllib3.exceptions.HTTPError:
            return {}
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def counted_writes(self) -> Mapping[str, int]:
        """Return the number of the controller's writes so far, by resource, without the Lease."""
        counts: dict[str, int] = {}
        for (verb, resource), count in self.requests().items():
            if verb in _WRITES and resource != "leases":
                counts[resource] = counts.get(resource, 0) + count
        return counts
