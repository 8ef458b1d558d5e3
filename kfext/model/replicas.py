"""Which pod of a job is which of its replicas."""

from collections.abc import Iterable

from kfext.model.pod import Pod, ReplicaKey


def by_replica(pods: Iterable[Pod]) -> dict[ReplicaKey, Pod]:
    """Return the pods of a job that are not being deleted, by replica.

    Of several that are called one replica, as anybody may call a pod, it is the one that has a
    node: else each of the others would get what that one has.
    """
    found: dict[ReplicaKey, Pod] = {}
    for pod in pods:
        if not pod.deleting and pod.replica is not None:
            known = found.get(pod.replica)
            if known is None or not known.home:
                found[pod.replica] = pod
    return found
