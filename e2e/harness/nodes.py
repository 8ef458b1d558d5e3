"""Changes of nodes and other objects by a test; each waits until the controller has received it.

Jobs and pods reach the controller on watches of their own. Without waiting, the controller might
decide on a job with the policy, the node or the label from before the change.
"""

from collections.abc import Mapping

from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.wait import until
from e2e.testbed.api import is_ready

_KWOK = "kwok.x-k8s.io/node"
NOT_READY = "node.kubernetes.io/not-ready"


def wait_received(kfext: Kfext, path: str) -> None:
    """Wait until the controller, if it runs, has received the current version of an object."""
    version = int(kfext.kube.get(path)["metadata"]["resourceVersion"])
    streams = kfext.proxy.streams(path.split("/")[-2])
    until(
        lambda: all(stream.version >= version or not stream.open for stream in streams),
        what=f"the controller receives {path}",
    )


def delete_and_wait(kfext: Kfext, path: str) -> None:
    """Delete an object; wait until the controller, if it runs, has received the deletion."""
    streams = kfext.proxy.streams(path.split("/")[-2])
    uid = kfext.kube.get(path)["metadata"]["uid"]
    kfext.kube.delete(path)
    until(
        lambda: all(uid in stream.gone or not stream.open for stream in streams),
        what=f"the controller receives the deletion of {path}",
    )


def path(node: str) -> str:
    return f"/api/v1/nodes/{node}"


def label(kfext: Kfext, node: str, labels: Mapping[str, str | None]) -> None:
    _change(kfext, node, {"metadata": {"labels": labels}})


def taint(kfext: Kfext, node: str, effect: str, *, key: str = "example.com/broken") -> None:
    """Taint a node; NoExecute also evicts its pods."""
    taints = [{"key": key, "effect": effect}]
    _change(kfext, node, {"spec": {"taints": taints}})


def cordon(kfext: Kfext, node: str, *, shut: bool = True) -> None:
    _change(kfext, node, {"spec": {"unschedulable": shut or None}})


def shrink(kfext: Kfext, node: str, gpus: int) -> None:
    """Reduce the GPUs that a node offers to `gpus`, as when a device fails."""
    _change(kfext, node, {"status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}}, at="/status")


def stop_reports(kfext: Kfext, node: str) -> None:
    """Stop the reports of a node's kubelet; wait until the node has the taints for not ready."""
    kube = kfext.kube
    kube.patch(path(node), {"metadata": {"annotations": {_KWOK: None}}})
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    kube.patch(f"{path(node)}/status", {"status": {"conditions": [ready]}})
    until(
        lambda: {"NoSchedule", "NoExecute"} <= _not_ready_effects(kube.get(path(node))),
        what=f"node {node} is tainted as not ready",
    )
    wait_received(kfext, path(node))


def resume_reports(kfext: Kfext, node: str) -> None:
    """Resume the reports of a node's kubelet; wait until the node is ready."""
    kube = kfext.kube
    kube.patch(path(node), {"metadata": {"annotations": {_KWOK: "fake"}}})
    until(
        lambda: is_ready(stored := kube.get(path(node))) and not _not_ready_effects(stored),
        what=f"node {node} is ready again",
    )
    wait_received(kfext, path(node))


def _change(kfext: Kfext, node: str, patch: Object, *, at: str = "") -> None:
    kfext.kube.patch(path(node) + at, patch)
    wait_received(kfext, path(node))


def _not_ready_effects(node: Object) -> set[str]:
    taints = node["spec"].get("taints", [])
    return {taint["effect"] for taint in taints if taint["key"] == NOT_READY}
