"""Real nodes with kfext, a namespace for each run, and the pods in it.

`Pods` says what the pods use and print, and resizes them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from e2e.bench.bed import Bench
from e2e.harness.install import component, create_namespace, kubectl
from e2e.harness.jobs import jobs_path, workers
from e2e.harness.kfext_process import Kfext
from e2e.testbed import lifecycle, metrics_server
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import step
from e2e.testbed.realnodes import Node, nodes
from kfext.kube.pod_log import lines_of
from kfext.model.log_line import LogLine
from kfext.names import JOB_NAME

Object = dict[str, Any]
MILLICORES = 20
REQUEST = f"{MILLICORES}m"
"""The CPU request of every pod: all have the same weight, and next to none is reserved."""
_STRATEGIC = "application/strategic-merge-patch+json"
_COMPONENTS = ("pod-resize",)
"""Beside the components of the default overlay."""
_KNOWN_SECONDS = 30.0
COUNT = 4


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that runs; `request`, `limit`: of its CPU as in its spec now, empty without one."""

    name: str
    uid: str
    job: str
    container: str
    request: str = ""
    limit: str = ""

    @property
    def cpu(self) -> tuple[str, str]:
        """Its request and its limit."""
        return self.request, self.limit


class Pods:
    """The pods of `namespace` on `node`; `kfext` is what runs there."""

    def __init__(self, bed: Testbed, namespace: str, node: Node, kfext: Kfext) -> None:
        self.bed, self.namespace, self.node, self.kfext = bed, namespace, node, kfext
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def bodies(self) -> list[Object]:
        """Return all of them as they are stored."""
        found: list[Object] = self.bed.api.get(self.path)["items"]
        return found

    def cpu_seconds(self, pod: Pod) -> float | None:
        """Return the CPU time that a pod has used so far, None before it has a cgroup."""
        return self.node.pod_cpu_seconds(pod.uid)

    def log(self, pod: str) -> list[LogLine]:
        """Return what a pod has printed."""
        text: str = self.bed.api.get(f"{self.path}/{pod}/log?timestamps=true")
        return lines_of(text.encode())

    def request(self, pod: Pod, millicores: int) -> bool:
        """Set the CPU request of a pod that runs; return whether the API server took it."""
        resources = {"requests": {"cpu": f"{millicores}m"}}
        patch = {"spec": {"containers": [{"name": pod.container, "resources": resources}]}}
        try:
            self.bed.api.request("PATCH", f"{self.path}/{pod.name}/resize", patch, kind=_STRATEGIC)
        except ApiError:
            return False  # it has ended meanwhile
        return True


def running(bodies: list[Object]) -> list[Pod]:
    """Return the pods with a running container, by name."""
    found = []
    for body in bodies:
        metadata = body["metadata"]
        (container,) = body["spec"]["containers"]
        states = [status["state"] for status in body["status"].get("containerStatuses", [])]
        if states and "running" in states[0] and "deletionTimestamp" not in metadata:
            job = metadata.get("labels", {}).get(JOB_NAME, "")
            resources = container.get("resources", {})
            cpu = (resources.get(of, {}).get("cpu", "") for of in ("requests", "limits"))
            found.append(Pod(metadata["name"], metadata["uid"], job, container["name"], *cpu))
    return sorted(found, key=lambda pod: pod.name)


class Site:
    """The node, for one run at a time. kfext is there in all of them, and idle in most."""

    def __init__(self, bed: Testbed, node: Node, kfext: Bench) -> None:
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
            bench = Bench(bed)
            bench.install()
            for part in _COMPONENTS:
                for manifest in component(part):
                    bed.api.apply(manifest)
        with step("metrics-server"):
            metrics_server.start(bed)
        yield Site(bed, node, bench)


@contextmanager
def four_nodes(name: str) -> Iterator[Site]:
    """Run a testbed of four real nodes for the time of a `with` block; 350m each on two cores.

    The `Pods` of its namespaces are on any of them; the first one is what they call their node.
    """
    with lifecycle.running(name, real_nodes=COUNT) as bed:
        with step("kfext"):
            bench = Bench(bed)
            bench.install()
        yield Site(bed, nodes(bed)[0], bench)
