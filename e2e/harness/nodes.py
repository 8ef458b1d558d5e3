"""What befalls a node: it is tainted, shrinks, or goes quiet."""

from e2e.harness.kube import Kube, Object
from e2e.harness.wait import until
from e2e.testbed import fakenodes

_KWOK = "kwok.x-k8s.io/node"
NOT_READY = "node.kubernetes.io/not-ready"


def path(node: str) -> str:
    return f"/api/v1/nodes/{node}"


def taint(kube: Kube, node: str, effect: str) -> None:
    """Taint a node; NoExecute has its pods deleted too."""
    taints = [{"key": "example.com/broken", "effect": effect}]
    kube.patch(path(node), {"spec": {"taints": taints}})


def cordon(kube: Kube, node: str, *, shut: bool = True) -> None:
    kube.patch(path(node), {"spec": {"unschedulable": shut or None}})


def shrink(kube: Kube, node: str, gpus: int) -> None:
    """Have a node offer fewer GPUs, as when a device fails."""
    kube.patch(f"{path(node)}/status", {"status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}})


def go_quiet(kube: Kube, node: str) -> None:
    """Have a kubelet say no more, and wait until the node controller has marked the node."""
    kube.patch(path(node), {"metadata": {"annotations": {_KWOK: None}}})
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    kube.patch(f"{path(node)}/status", {"status": {"conditions": [ready]}})
    until(
        lambda: {"NoSchedule", "NoExecute"} <= _not_ready_effects(kube.get(path(node))),
        what=f"node {node} is marked as not ready",
    )


def speak_again(kube: Kube, node: str) -> None:
    kube.patch(path(node), {"metadata": {"annotations": {_KWOK: "fake"}}})
    until(
        lambda: fakenodes.is_ready(found := kube.get(path(node))) and not _not_ready_effects(found),
        what=f"node {node} is ready again",
    )


def _not_ready_effects(node: Object) -> set[str]:
    taints = node["spec"].get("taints", [])
    return {taint["effect"] for taint in taints if taint["key"] == NOT_READY}
