"""The pods of each training job, as last seen.

A pod belongs to a job only in the job's namespace, because a pod of another namespace can name any
uid as its owner.
"""

from collections import Counter

from kfext.model.pod import Pod, ReplicaKey

_Owner = tuple[str, str]
"""A namespace, and the uid of a job in it."""
_Replica = tuple[_Owner, ReplicaKey | None]
"""A replica of a job; None stands for pods that name no replica."""


class Members:
    """The pods of each job, including terminating pods."""

    def __init__(self) -> None:
        self._pods: dict[_Owner, dict[str, Pod]] = {}
        self._live: Counter[_Replica] = Counter()
        self._present: Counter[_Replica] = Counter()

    def pods_of(self, job_uid: str, *, namespace: str) -> tuple[Pod, ...]:
        """Return the pods of a job in a namespace."""
        return tuple(self._pods.get((namespace, job_uid), {}).values())

    def all(self) -> tuple[Pod, ...]:
        """Return the pods of all jobs."""
        return tuple(pod for pods in self._pods.values() for pod in pods.values())

    def known(self, pod: Pod) -> Pod | None:
        """Return a pod as it was last seen with its present owner, or None."""
        return self._pods.get(_owner(pod), {}).get(pod.uid) if pod.owner_uid else None

    def duplicates(self, pod: Pod) -> int:
        """Return the number of pods with the owner and replica of a pod, itself included.

        Terminating and failed pods do not count. Only a pod without duplicates can be in the gang.
        """
        return self._live[_owner(pod), pod.replica]

    def has_duplicate(self, pod: Pod) -> bool:
        """Return whether several pods have the owner and replica of a pod, in any state."""
        return self._present[_owner(pod), pod.replica] > 1

    def put(self, pod: Pod) -> None:
        """Store the present version of a pod."""
        self._recount(pod, new=pod)
        self._pods.setdefault(_owner(pod), {})[pod.uid] = pod

    def remove(self, pod: Pod) -> None:
        """Forget a pod of a job."""
        self._recount(pod, new=None)
        members = self._pods.get(_owner(pod), {})
        members.pop(pod.uid, None)
        if not members:
            self._pods.pop(_owner(pod), None)

    def _recount(self, pod: Pod, *, new: Pod | None) -> None:
        owner = _owner(pod)
        for version, sign in ((self._pods.get(owner, {}).get(pod.uid), -1), (new, 1)):
            if version is not None:
                replica = (owner, version.replica)
                _count(self._present, replica, sign)
                live = not version.deleting and version.phase != "Failed"
                _count(self._live, replica, sign if live else 0)


def _count(counter: Counter[_Replica], replica: _Replica, number: int) -> None:
    counter[replica] += number
    if not counter[replica]:
        del counter[replica]


def _owner(pod: Pod) -> _Owner:
    return (pod.namespace, pod.owner_uid)
