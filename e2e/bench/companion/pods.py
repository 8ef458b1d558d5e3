"""The pods of one namespace on the node: what they use and print, and how they are resized."""

from dataclasses import dataclass
from typing import Any

from e2e.harness.kfext_process import Kfext
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node
from kfext.kube.pod_log import lines_of
from kfext.model.log_line import LogLine
from kfext.names import JOB_NAME

Object = dict[str, Any]
REQUEST = "20m"
"""The CPU request of every pod: all have the same weight, and next to none is reserved."""
SMALLEST_CAP = 50
"""In millicores: below, a pod gets less than one slice of the kernel's scheduler in a period."""
_STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that runs; `limit`: of its CPU as it is now in its spec, empty without one."""

    name: str
    uid: str
    job: str
    container: str
    limit: str = ""


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

    def cap(self, pod: Pod, millicores: int) -> bool:
        """Set the CPU limit of a pod that runs; return whether the API server took it."""
        limits = {"limits": {"cpu": f"{max(SMALLEST_CAP, millicores)}m"}}
        containers = [{"name": pod.container, "resources": limits}]
        patch = {"spec": {"containers": containers}}
        try:
            self.bed.api.request("PATCH", f"{self.path}/{pod.name}/resize", patch, kind=_STRATEGIC)
        except ApiError:
            return False  # it has ended meanwhile
        return True


def running(bodies: list[Object]) -> list[Pod]:
    """Return the pods whose container runs, by name."""
    found = []
    for body in bodies:
        metadata = body["metadata"]
        (container,) = body["spec"]["containers"]
        states = [one["state"] for one in body["status"].get("containerStatuses", [])]
        if states and "running" in states[0] and "deletionTimestamp" not in metadata:
            job = metadata.get("labels", {}).get(JOB_NAME, "")
            limit = container.get("resources", {}).get("limits", {}).get("cpu", "")
            found.append(Pod(metadata["name"], metadata["uid"], job, container["name"], limit))
    return sorted(found, key=lambda pod: pod.name)
