"""Carries out the script's actions on admission, on foreign pods, and on the CPU of pods."""

import time
from dataclasses import dataclass
from typing import Any

from e2e.harness.kube import Kube, Object
from e2e.soak import manifests
from e2e.soak.actions import Actor, pods_path
from e2e.soak.facts import GATE, REFUSES, amount, amounts, excess, requests, total
from e2e.soak.reading import node_of, pod_of

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_RESIZE_SECONDS = 4.0
_LEAST, _LARGEST = amount("100m"), amount("16")


@dataclass(frozen=True, slots=True)
class Resizing:
    """A pod that is being resized: when its kubelet is due to act, and its resources before."""

    due: float
    uid: str
    before: Object


class PodActions(Actor):
    """Actions on admission and pods: one method per action."""

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube)
        self._resizing: dict[str, Resizing] = {}

    # --- admission --------------------------------------------------------------------------------

    def refuse_here(self, namespace: str, writes: str) -> None:
        """Have the API server refuse some writes in a namespace until `admit_here`."""
        self._label(namespace, writes)
        self.effects["refuse_here"] += 1

    def admit_here(self, namespace: str) -> None:
        self._label(namespace, None)

    def limit(self, namespace: str, cpu: str, memory: str) -> None:
        body = manifests.limit_range(cpu, memory)
        path = f"/api/v1/namespaces/{namespace}/limitranges"
        self.effects["limit"] += self._ask("POST", path, body)

    def unlimit(self, namespace: str) -> None:
        self._ask("DELETE", f"/api/v1/namespaces/{namespace}/limitranges/soak")

    def _label(self, namespace: str, writes: str | None) -> None:
        self._patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {REFUSES: writes}}})

    # --- pods that a person pins ------------------------------------------------------------------

    def pin_stranger(self, namespace: str, name: str, node: str, how: str) -> None:
        is_created = self._ask("POST", pods_path(namespace), manifests.pinned_pod(name, node, how))
        self.effects["pin_stranger"] += is_created

    def drop_stranger(self, namespace: str, name: str) -> None:
        self._ask("DELETE", pods_path(namespace, name))

    def pin_gated(self, position: float, node: str) -> None:
        waiting = [pod for pod in self._kube.items("/api/v1/pods") if _is_gated_without_pin(pod)]
        if waiting:
            metadata = waiting[int(position * len(waiting))]["metadata"]
            affinity = manifests.pinned_pod("", node, "plain")["spec"]["affinity"]
            path = pods_path(metadata["namespace"], metadata["name"])
            self.effects["pin_gated"] += self._patch(path, {"spec": {"affinity": affinity}})

    # --- in-place resize --------------------------------------------------------------------------

    def resize(self, namespace: str, _kind: str, job: str, position: float, double: bool) -> None:
        """Double or halve the CPU of a running pod; its kubelet follows a little later."""
        selector = f"?labelSelector=training.kubeflow.org/job-name%3D{job}"
        pods = [item for item in self._kube.items(pods_path(namespace) + selector) if _runs(item)]
        if not pods:
            return
        pod = pods[int(position * len(pods))]
        container = pod["spec"]["containers"][0]
        resources = container.get("resources", {})
        before = amounts(resources.get("requests")).get("cpu")
        if before is None:
            return
        path = pods_path(namespace, pod["metadata"]["name"])
        if path in self._resizing:
            return
        after = min(before * 2, _LARGEST) if double else max(before / 2, _LEAST)
        self._allocate(path, pod, resources)
        cpu = f"{int(after * 1000)}m"
        old = {key: {"cpu": has["cpu"]} for key, has in resources.items() if "cpu" in (has or {})}
        if self._request_size(path, pod, {key: {"cpu": cpu} for key in old}):
            self.effects["resize"] += 1
            due = time.monotonic() + _RESIZE_SECONDS
            self._resizing[path] = Resizing(due, pod["metadata"]["uid"], old)

    def tend(self) -> None:
        """Act as kubelet some seconds after a resize: allocate the new size if it fits.

        A size that does not fit would stay deferred, so its request is reverted.
        """
        for path, resizing in sorted(self._resizing.items()):
            if resizing.due > time.monotonic():
                continue
            pod = self._kube.find(path)
            if pod is None or pod["metadata"]["uid"] != resizing.uid:
                del self._resizing[path]
            elif self._fits(pod):
                del self._resizing[path]
                self._allocate(path, pod, pod["spec"]["containers"][0]["resources"])
            else:
                self._request_size(path, pod, resizing.before)

    def _allocate(self, path: str, pod: Object, resources: Any) -> None:
        statuses = pod["status"].get("containerStatuses") or []
        name = pod["spec"]["containers"][0]["name"]
        updated = [
            {**container, "resources": resources} if container["name"] == name else container
            for container in statuses
        ]
        self._patch(f"{path}/status", {"status": {"containerStatuses": updated}})

    def _request_size(self, path: str, pod: Object, resources: Object) -> bool:
        name = pod["spec"]["containers"][0]["name"]
        body = {"spec": {"containers": [{"name": name, "resources": resources}]}}
        return self._patch(f"{path}/resize", body, kind="strategic")

    def _fits(self, pod: Object) -> bool:
        """Return whether a pod's request fits its node beside what is granted to other pods."""
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        pods = map(pod_of, self._kube.items(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"))
        granted = [other.granted for other in pods if other.uid != uid and not other.over]
        raw = self._kube.find(f"/api/v1/nodes/{node}")
        offered = node_of(raw).offers if raw else {}
        return not excess(total([*granted, requests(pod["spec"])]), offered)


def _runs(pod: Object) -> bool:
    placed = pod["spec"].get("nodeName") and pod["status"].get("phase") == "Running"
    return bool(placed) and "deletionTimestamp" not in pod["metadata"]


def _is_gated_without_pin(pod: Object) -> bool:
    """Return whether a pod waits at kfext's gate, and no person has limited it to nodes.

    Pods of tenants do not count: kfext releases their jobs unchanged, whatever their pins.
    """
    job = pod["metadata"].get("labels", {}).get("training.kubeflow.org/job-name", "")
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return job.startswith("job-") and GATE in gates and _REQUIRED not in affinity
