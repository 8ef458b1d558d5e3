"""The pod of each replica of a job.

Any client may label a pod as any replica of a job, and name the job as the pod's owner.
"""

from collections.abc import Iterable

from kfext.model.pod import Pod, ReplicaKey


def by_replica(pods: Iterable[Pod]) -> dict[ReplicaKey, Pod]:
    """Return the pods of a job that are not being deleted, by replica.

    If several pods claim to be a replica, the oldest with a node counts, so the others get nothing.
    A failed pod comes last: it may stay beside the pod that replaces it.
    """
    return _first(pod for pod in pods if not pod.deleting)


def first_with_share(pods: Iterable[Pod]) -> dict[ReplicaKey, str]:
    """Return the uid of the oldest pod with a GPU share, by replica.

    A pod that is being deleted still has its share.
    """
    first = _first(pod for pod in pods if pod.share and pod.home and not pod.finished)
    return {key: pod.uid for key, pod in first.items()}


def _first(pods: Iterable[Pod]) -> dict[ReplicaKey, Pod]:
    """Return the first pod of each replica, in the order of `_rank`."""
    first: dict[ReplicaKey, Pod] = {}
    for pod in pods:
        if pod.replica is not None:
            known = first.get(pod.replica)
            if known is None or _rank(pod) < _rank(known):
                first[pod.replica] = pod
    return first


def _rank(pod: Pod) -> tuple[bool, bool, float, str]:
    return pod.phase == "Failed", not pod.home, pod.created, pod.uid
