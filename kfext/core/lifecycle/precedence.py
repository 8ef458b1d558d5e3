"""Members of one gang with different priorities are pinned in turn, the highest first.

A pin leaves kube-scheduler one node. If somebody else took capacity there in the meantime, it makes
room for a pod by preempting pods of lower priority, which may be members of the pod's own gang. A
member of lower priority that is not bound yet cannot be preempted, and one that comes later
preempts nobody of its gang.
"""

from collections.abc import Collection

from kfext.model.pod import Pod


def first_to_pin(gated: Collection[Pod]) -> frozenset[str]:
    """Return the uids of the pods to pin now: those of the highest priority."""
    highest = max((pod.priority for pod in gated), default=0)
    return frozenset(pod.uid for pod in gated if pod.priority == highest)


def others_first(gated: Collection[Pod], live: Collection[Pod]) -> bool:
    """Return whether a member of higher priority than a gated one is pinned and not bound yet."""
    lowest = min((pod.priority for pod in gated), default=0)
    return any(
        pod.priority > lowest and pod.pinned_to and not (pod.node_name or pod.finished)
        for pod in live
    )
