"""The pods of each training job, as last seen."""

from kfext.model.pod import Pod


class Members:
    """Pods by the uid of the job that controls them, terminating ones included."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Pod]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def of(self, job_uid: str) -> tuple[Pod, ...]:
        """Return the pods of a job."""
        return tuple(self._pods.get(job_uid, {}).values())

    def all(self) -> tuple[Pod, ...]:
        """Return the pods of all jobs."""
        return tuple(pod for pods in self._pods.values() for pod in pods.values())

    def known(self, pod: Pod) -> Pod | None:
        """Return a pod as it was last seen under the same owner."""
        return self._pods.get(pod.owner_uid, {}).get(pod.uid) if pod.owner_uid else None

    def put(self, pod: Pod) -> None:
        """Store the present version of a pod."""
        self._pods.setdefault(pod.owner_uid, {})[pod.uid] = pod

    def remove(self, pod: Pod) -> None:
        """Forget a pod of a job."""
        members = self._pods.get(pod.owner_uid, {})
        members.pop(pod.uid, None)
        if not members:
            self._pods.pop(pod.owner_uid, None)
