"""The real nodes with kfext, and a namespace with its pods for each run.

`Pods` reads the CPU usage and the logs of pods, and resizes them.
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
"""The CPU request of every pod, so that weights are equal and almost no CPU is reserved."""
_STRATEGIC = "application/strategic-merge-patch+json"
_COMPONENTS = ("pod-resize",)
"""The kustomize components to install beside the default overlay."""
_WEBHOOK_SECONDS = 30.0
NODES = 4


@dataclass(frozen=True, slots=True)
class Pod:
    """A running pod. `request`, `limit`: its current CPU request and limit; empty means none."""

    name: str
    uid: str
    job: str
    container: str
    request: str = ""
    limit: str = ""

    @property
    def cpu(self) -> tuple[str, str]:
        return self.request, self.limit


class Pods:
    """The pods of `namespace` on `node`, and the `kfext` of the cluster."""

    def __init__(self, bed: Testbed, namespace: str, node: Node, kfext: Kfext) -> None:
        self.bed, self.namespace, self.node, self.kfext = bed, namespace, node, kfext
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def bodies(self) -> list[Object]:
        items: list[Object] = self.bed.api.get(self.path)["items"]
        return items

    def cpu_seconds(self, pod: Pod) -> float | None:
        """Return the CPU time that a pod has used so far, or None before it has a cgroup."""
        return self.node.pod_cpu_seconds(pod.uid)

    def log(self, pod: str) -> list[LogLine]:
        text: str = self.bed.api.get(f"{self.path}/{pod}/log?timestamps=true")
        return lines_of(text.encode())

    def request(self, pod: Pod, millicores: int) -> bool:
        """Set the CPU request of a running pod; return whether the API server accepted it."""
        resources = {"requests": {"cpu": f"{millicores}m"}}
        patch = {"spec": {"containers": [{"name": pod.container, "resources": resources}]}}
        try:
            self.bed.api.request("PATCH", f"{self.path}/{pod.name}/resize", patch, kind=_STRATEGIC)
        except ApiError:
            return False  # the pod has ended meanwhile
        return True


def running(bodies: list[Object]) -> list[Pod]:
    """Return the pods with a running container, in order of name."""
    pods = []
    for body in bodies:
        metadata = body["metadata"]
        (container,) = body["spec"]["containers"]
        states = [status["state"] for status in body["status"].get("containerStatuses", [])]
        if states and "running" in states[0] and "deletionTimestamp" not in metadata:
            job = metadata.get("labels", {}).get(JOB_NAME, "")
            resources = container.get("resources", {})
            cpu = (resources.get(part, {}).get("cpu", "") for part in ("requests", "limits"))
            pods.append(Pod(metadata["name"], metadata["uid"], job, container["name"], *cpu))
    return sorted(pods, key=lambda pod: pod.name)


class Site:
    """The node, for one run at a time; kfext is installed, and idle in arms without it."""

    def __init__(self, bed: Testbed, node: Node, kfext: Bench) -> None:
        self.bed, self.node, self._kfext = bed, node, kfext
        self._numbers = count()

    @contextmanager
    def namespace(self, name: str, *, managed: bool) -> Iterator[Pods]:
        """Create a namespace for a `with` block; it is deleted afterwards, with its pods."""
        unique_name = f"{name}-{next(self._numbers)}"
        create_namespace(self.bed, unique_name, managed=managed)
        try:
            if managed:
                self.bed.wait_for(
                    lambda: self._suspends(unique_name),
                    what="the webhook to know the namespace",
                    seconds=_WEBHOOK_SECONDS,
                )
            yield Pods(self.bed, unique_name, self.node, self._kfext)
        finally:
            kubectl(self.bed, "delete", "namespace", unique_name, "--timeout=180s")

    def _suspends(self, namespace: str) -> bool:
        """Return whether the webhook suspends a job of the namespace, by a dry run."""
        body = workers("trial", 1)
        path = f"{jobs_path(namespace, body['kind'])}?dryRun=All"
        stored = self.bed.api.create(path, body)
        return bool(stored["spec"]["runPolicy"].get("suspend"))


@contextmanager
def one_cpu(name: str) -> Iterator[Site]:
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
    """Run a testbed of four real nodes during a `with` block, each with 350m of the two cores.

    Pods may be on any of them; the `node` of each `Pods` is the first.
    """
    with lifecycle.running(name, real_nodes=NODES) as bed:
        with step("kfext"):
            bench = Bench(bed)
            bench.install()
        yield Site(bed, nodes(bed)[0], bench)
