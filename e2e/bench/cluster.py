"""The cluster that benchmarks share: 200 fake nodes, fast components, kfext as two processes."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from e2e.harness.kfext_process import Kfext
from e2e.testbed import lifecycle
from e2e.testbed.cluster import Testbed
from kfext.kube.client import Client

NODES = 200
_COMMAND = Path(sys.executable).with_name("kfext")
_SYSTEM = "system:serviceaccount:kfext-system"


class Bench(Kfext):
    """kfext as the harness installs it, but the controller speaks to the API server directly.

    Both log as in production.
    """

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        self._controller_config = testbed.pki.kubeconfig(
            testbed.folder / "kubeconfigs" / "kfext-controller-direct.yaml",
            server=testbed.server,
            user=f"{_SYSTEM}:kfext-controller",
            groups=("system:serviceaccounts", "system:serviceaccounts:kfext-system"),
        )

    def launch_controller(self) -> None:
        self._controller = self.testbed.start_process(
            [
                *(str(_COMMAND), "controller", "--log-level=info"),
                f"--kubeconfig={self._controller_config}",
                f"--probe-port={self._probe_port}",
            ],
            name="kfext-controller",
        )

    @property
    def controller_pid(self) -> int:
        """The process id of the controller."""
        if self._controller is None:
            raise RuntimeError("the controller does not run")
        return self._controller.pid

    def controller_cpu(self) -> float:
        """Return the CPU seconds that the controller has used so far."""
        stat = Path(f"/proc/{self.controller_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def reviews_url(self) -> str:
        """Where the webhook takes reviews."""
        return f"https://127.0.0.1:{self._hook_port}"

    def requests(self) -> dict[tuple[str, str], int]:
        """Return how many requests the controller has made so far, by verb and resource."""
        url = f"http://127.0.0.1:{self._probe_port}/metrics"
        page = urllib3.request("GET", url, timeout=5).data.decode()
        counts: dict[tuple[str, str], int] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == "kfext_api_requests_total":
                    key = (sample.labels["verb"], sample.labels["resource"])
                    counts[key] = counts.get(key, 0) + int(sample.value)
        return counts


@contextmanager
def kfext_cluster() -> Iterator[Bench]:
    """Run a testbed with kfext for the time of a `with` block; nothing of it remains."""
    with lifecycle.running("bench", fake_nodes=NODES, fast=True) as bed:
        bench = Bench(bed)
        bench.install()
        yield bench


def with_client(bench: Bench, measure: Callable[[Client], Awaitable[Any]]) -> Any:
    """Run `measure` with an administrator's client; Ctrl-C and SIGTERM cancel it."""

    async def run() -> Any:
        async with await Client.connect(bench.testbed.kubeconfig) as client:
            return await measure(client)

    return asyncio.run(run())
