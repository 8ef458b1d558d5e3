"""The pod that prints the progress of a job: where kfext last found progress, else rank 0."""

from collections.abc import Iterable

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod, ReplicaKey
from kfext.names import KATIB_COLLECTOR
from kfext.state.mirror.cluster import Cluster

_HAVE_LOGS = frozenset({"Running", "Succeeded", "Failed"})
_FRUITLESS_READS = 2
"""Other logs are read too after this many reads without progress of a log that had shown it."""


def printing_pods(job: TrainingJob, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of a job that may print its progress, the likeliest first.

    The first pod is rank 0. If any worker may be rank 0, the other workers follow. The newest pod
    of a replica stands for the replica.
    """
    order = [type_.lower() for type_ in job.kind.rank_zero]
    newest: dict[tuple[int, int], Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created, pod.uid)):
        if pod.node_name and pod.replica and pod.replica.type in order:
            newest[order.index(pod.replica.type), pod.replica.index] = pod
    ranked = [newest[key] for key in sorted(newest)]
    return ranked if job.rendezvous.dynamic else ranked[:1]


def printing_container(job: TrainingJob, pod: Pod) -> str:
    """Return the container of a pod that logs the training."""
    return KATIB_COLLECTOR if pod.collected else job.kind.container


class PrintingPods:
    """The pods that print the progress of jobs, by the uid of the job."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._printed: dict[str, ReplicaKey] = {}
        self._ended: dict[str, set[str]] = {}

    def record_read(self, uid: str, pod: Pod, *, shows_progress: bool) -> None:
        """Record that the log of a pod of a job was read, and whether it showed progress."""
        if shows_progress and pod.replica is not None:
            self._printed[uid] = pod.replica
        if pod.finished:
            self._ended.setdefault(uid, set()).add(pod.uid)

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._printed.pop(uid, None)
        self._ended.pop(uid, None)

    def next(self, job: TrainingJob, *, fruitless: int) -> Pod | None:
        """Return the pod with the log to read next, or None once all logs were read to the end.

        `fruitless`: the number of reads in a row without progress. If there are such reads, more
        than _FRUITLESS_READS for a pod that has printed progress, then every second read is of
        another pod, which may have become rank 0. A log that has ended is read once.
        """
        ended = self._ended.get(job.uid, set())
        pods = [pod for pod in self._likeliest(job) if pod.phase in _HAVE_LOGS]
        printed = bool(pods) and pods[0].replica == self._printed.get(job.uid)
        # Once the pod that printed progress has ended, another pod may print lower steps.
        unread = pods[:1] if printed else []
        unread += [pod for pod in pods[len(unread) :] if pod.uid not in ended]
        if not unread:
            return None
        tries = max(0, fruitless - _FRUITLESS_READS) if printed else fruitless
        others = unread[1:] if tries % 2 else []
        pod = others[tries // 2 % len(others)] if others else unread[0]
        return None if pod.uid in ended else pod

    def live(self, job: TrainingJob) -> Pod | None:
        """Return the running pod that prints the progress of a job, if any."""
        pods = self._likeliest(job)
        return next((pod for pod in pods if pod.phase == "Running" and not pod.deleting), None)

    def _likeliest(self, job: TrainingJob) -> list[Pod]:
        pods = printing_pods(job, self._cluster.pods(job.uid))
        return sorted(pods, key=lambda pod: pod.replica != self._printed.get(job.uid))
