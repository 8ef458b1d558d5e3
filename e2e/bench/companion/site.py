"""Where the jobs run: a testbed of one real node with kfext, and a namespace for each run."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from e2e.bench.bed import Bench as Installed
from e2e.bench.companion.pods import Pods
from e2e.harness.install import create_namespace, kubectl
from e2e.harness.installed import component
from e2e.harness.jobs import jobs_path, workers
from e2e.testbed import lifecycle, metrics_server
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import step
from e2e.testbed.realnodes import Node, nodes

_COMPONENTS = ("pod-resize",)
"""Beside those that the default overlay has."""
_KNOWN_SECONDS = 30.0


class Site:
    """The node, for one run at a time. kfext is there in all of them, and idle in most."""

    def __init__(self, bed: Testbed, node: Node, kfext: Installed) -> None:
        self.bed, self.node, self._kfext = bed, node, kfext
        self._numbers = count()

    @contextmanager
    def namespace(self, name: str, *, managed: bool) -> Iterator[Pods]:
        """Have a namespace for the time of a `with` block, and leave the node empty."""
        unique = f"{name}-{next(self._numbers)}"
        create_namespace(self.bed, unique, managed=managed)
        try:
            if managed:
                self.bed.wait_for(
                    lambda: self._held(unique),
                    what="the webhook to know the namespace",
                    seconds=_KNOWN_SECONDS,
                )
            yield Pods(self.bed, unique, self.node, self._kfext)
        finally:
            kubectl(self.bed, "delete", "namespace", unique, "--timeout=180s")

    def _held(self, namespace: str) -> bool:
        """Return whether a job on trial is suspended."""
        body = workers("trial", 1)
        path = f"{jobs_path(namespace, body['kind'])}?dryRun=All"
        stored = self.bed.api.create(path, body)
        return bool(stored["spec"]["runPolicy"].get("suspend"))


@contextmanager
def one_cpu(name: str) -> Iterator[Site]:
    """Run a testbed of one node with one CPU for the time of a `with` block."""
    with lifecycle.running(name, real_nodes=1) as bed:
        node = nodes(bed)[0].with_one_cpu()
        with step("kfext"):
            installed = Installed(bed)
            installed.install()
            for part in _COMPONENTS:
                for manifest in component(part):
                    bed.api.apply(manifest)
        with step("metrics-server"):
            metrics_server.start(bed)
        yield Site(bed, node, installed)
