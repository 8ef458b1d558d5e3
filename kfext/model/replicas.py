"""Which pod of a job is which of its replicas.

Anybody may label a pod as any replica of a job, and name the job as its owner.
"""

from collections.abc import Iterable

from kfext.model.pod import Pod, ReplicaKey


def by_replica(pods: Iterable[Pod]) -> dict[ReplicaKey, Pod]:
    """Return the pods of a job that are not being deleted, by replica.

    If several claim the same one, the oldest that has a node wins, so that the others get nothing.
    """
    return _first(pod for pod in pods if not pod.deleting)


def first_with_parts(pods: Iterable[Pod]) -> dict[ReplicaKey, str]:
    """Return the uid of the oldest pod that has the part of a GPU of each replica.

    One that is being deleted still has it.
    """
    found = _first(pod for pod in pods if pod.share and pod.home and not pod.finished)
    return {key: pod.uid for key, pod in found.items()}


def _first(pods: Iterable[Pod]) -> dict[ReplicaKey, Pod]:
    """Return the oldest pod of each replica, but one with a node before all without."""
    found: dict[ReplicaKey, Pod] = {}
    for pod in pods:
        if pod.replica is not None:
            known = found.get(pod.replica)
            if known is None or _rank(pod) < _rank(known):
                found[pod.replica] = pod
    return found


def _rank(pod: Pod) -> tuple[bool, float, str]:
    return not pod.home, pod.created, pod.uid
