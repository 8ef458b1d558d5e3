"""The pod of each replica of a job.

Any client may label a pod as any replica of a job, and name the job as its owner.
"""

from collections.abc import Iterable

from kfext.model.pod import Pod, ReplicaKey


def by_replica(pods: Iterable[Pod]) -> dict[ReplicaKey, Pod]:
    """Return the pods of a job that are not being deleted, by replica.

    If several pods claim a replica, the oldest with a node wins, so that the others get nothing. A
    failed pod comes last: it may stay beside the pod that replaces it.
    """
    return _first(pod for pod in pods if not pod.deleting)


def first_with_parts(pods: Iterable[Pod]) -> dict[ReplicaKey, str]:
    """Return for each replica the uid of the oldest pod that has its part of a GPU.

    A pod that is being deleted still has its part.
    """
    found = _first(pod for pod in pods if pod.share and pod.home and not pod.finished)
    return {key: pod.uid for key, pod in found.items()}


def _first(pods: Iterable[Pod]) -> dict[ReplicaKey, Pod]:
    """Return the first pod of each replica: by node, then by age, and failed pods last."""
    found: dict[ReplicaKey, Pod] = {}
    for pod in pods:
        if pod.replica is not None:
            known = found.get(pod.replica)
            if known is None or _rank(pod) < _rank(known):
                found[pod.replica] = pod
    return found


def _rank(pod: Pod) -> tuple[bool, bool, float, str]:
    return pod.phase == "Failed", not pod.home, pod.created, pod.uid
