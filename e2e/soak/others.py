"""Carry out what the script says of admission, of pods of strangers, and of the size of pods."""

import time
from typing import Any

from e2e.harness.kube import Kube, Object
from e2e.soak import manifests
from e2e.soak.amounts import amount, amounts, requests, total
from e2e.soak.asking import Asking, pods_path
from e2e.soak.deeds import CAPACITY
from e2e.soak.facts import GATE, REFUSES

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SPARE = 24
"""CPUs that stay free on a node where a pod is made larger: more than kfext and kube-scheduler can
have given away before they hear of it."""
_RESIZE_SECONDS = 4.0
_LEAST, _LARGEST = amount("100m"), amount("16")


class Others(Asking):
    """One method per action."""

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube)
        self._resizing: dict[str, tuple[float, str]] = {}

    # --- admission --------------------------------------------------------------------------------

    def refuse_here(self, namespace: str, what: str) -> None:
        """Have the API server refuse some writes in a namespace, until it is `admit_here`."""
        self._label(namespace, what)
        self.took["refuse_here"] += 1

    def admit_here(self, namespace: str) -> None:
        self._label(namespace, None)

    def limit(self, namespace: str, cpu: str, memory: str) -> None:
        """Give containers that say nothing as much by default."""
        body = manifests.limit_range(cpu, memory)
        path = f"/api/v1/namespaces/{namespace}/limitranges"
        self.took["limit"] += self._ask("POST", path, body)

    def unlimit(self, namespace: str) -> None:
        self._ask("DELETE", f"/api/v1/namespaces/{namespace}/limitranges/soak")

    def _label(self, namespace: str, what: str | None) -> None:
        self._patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {REFUSES: what}}})

    # --- pods that somebody pins ------------------------------------------------------------------

    def pin_stranger(self, namespace: str, name: str, node: str, how: str) -> None:
        made = self._ask("POST", pods_path(namespace), manifests.pinned(name, node, how))
        self.took["pin_stranger"] += made

    def drop_stranger(self, namespace: str, name: str) -> None:
        self._ask("DELETE", pods_path(namespace, name))

    def pin_gated(self, share: float, node: str) -> None:
        """Pin a pod to a node that kfext holds back at its gate."""
        waiting = [pod for pod in self._kube.items("/api/v1/pods") if _is_open_behind_gate(pod)]
        if waiting:
            metadata = waiting[int(share * len(waiting))]["metadata"]
            affinity = manifests.pinned("", node, "plain")["spec"]["affinity"]
            path = pods_path(metadata["namespace"], metadata["name"])
            self.took["pin_gated"] += self._patch(path, {"spec": {"affinity": affinity}})

    # --- in-place resize --------------------------------------------------------------------------

    def resize(self, namespace: str, _kind: str, job: str, share: float, up: bool) -> None:
        """Double or halve the CPU of a pod that runs; its kubelet follows a little later."""
        selector = f"?labelSelector=training.kubeflow.org/job-name%3D{job}"
        pods = [one for one in self._kube.items(pods_path(namespace) + selector) if _runs(one)]
        if not pods:
            return
        pod = pods[int(share * len(pods))]
        container = pod["spec"]["containers"][0]
        has = container.get("resources", {})
        before = amounts(has.get("requests")).get("cpu")
        if before is None:
            return
        after = min(before * 2, _LARGEST) if up else max(before / 2, _LEAST)
        if up and after - before > self._spare(pod["spec"]["nodeName"]):
            return
        path = pods_path(namespace, pod["metadata"]["name"])
        self._allocate(path, pod, has)
        wanted = {
            which: {"cpu": f"{int(after * 1000)}m"} for which in has if "cpu" in (has[which] or {})
        }
        body = {"spec": {"containers": [{"name": container["name"], "resources": wanted}]}}
        if self._patch(f"{path}/resize", body, kind="strategic"):
            self.took["resize"] += 1
            self._resizing[path] = (time.monotonic() + _RESIZE_SECONDS, pod["metadata"]["uid"])

    def tend(self) -> None:
        """Do as a kubelet does a moment after a resize: give the pod what it asks for."""
        for path, (due, uid) in sorted(self._resizing.items()):
            if due > time.monotonic():
                continue
            del self._resizing[path]
            pod = self._kube.find(path)
            if pod is not None and pod["metadata"]["uid"] == uid:
                self._allocate(path, pod, pod["spec"]["containers"][0]["resources"])

    def _allocate(self, path: str, pod: Object, resources: Any) -> None:
        known = pod["status"].get("containerStatuses") or []
        name = pod["spec"]["containers"][0]["name"]
        told = [{**one, "resources": resources} if one["name"] == name else one for one in known]
        self._patch(f"{path}/status", {"status": {"containerStatuses": told}})

    def _spare(self, node: str) -> float:
        """Return the CPUs of a node that may be given to its pods."""
        pods = self._kube.items(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")
        taken = total(requests(pod["spec"], pod["status"]) for pod in pods).get("cpu", 0)
        return float(amount(CAPACITY["cpu"]) - taken - _SPARE)


def _runs(pod: Object) -> bool:
    on = pod["spec"].get("nodeName") and pod["status"].get("phase") == "Running"
    return bool(on) and "deletionTimestamp" not in pod["metadata"]


def _is_open_behind_gate(pod: Object) -> bool:
    """Say whether kfext holds a pod back that nobody has limited to nodes.

    Not one of a tenant: kfext lets those go as they are, and then the pin is the tenant's business.
    """
    job = pod["metadata"].get("labels", {}).get("training.kubeflow.org/job-name", "")
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return job.startswith("job-") and GATE in gates and _REQUIRED not in affinity
