"""Whether a pod that is pinned to a node, and not bound yet, takes anything from it.

Anybody may pin a pod by name. Such a pod counts only while kube-scheduler may still bind it there.
"""

from kfext.core.ledger.fit import why_not
from kfext.model.node import Node
from kfext.model.pod import Pod
from kfext.names import DEFAULT_SCHEDULER

UNBOUND_SECONDS = 60.0
"""After this age a pod that is not bound does not count: no scheduler seems to look at it."""


def could_run(pod: Pod, node: Node | None) -> bool:
    """Return whether kube-scheduler could bind a pinned pod to its node, if that were empty."""
    if node is None or pod.gates or pod.deleting or pod.scheduler != DEFAULT_SCHEDULER:
        return False
    if any(node.allocatable.get(name, 0) < number for name, number in pod.requests.items()):
        return False
    return pod.constraints is None or why_not(pod.constraints, node) is None


def may_be_bound(pod: Pod, node: Node | None) -> bool:
    """Return whether a pinned pod that is young enough will be bound to its node soon.

    kube-scheduler has refused one that it calls unschedulable; what that waits for is not known.
    """
    return not pod.unschedulable and could_run(pod, node)
