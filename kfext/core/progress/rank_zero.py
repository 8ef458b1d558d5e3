"""Whose log has the progress of a job: the pod that is rank 0 prints, in every framework."""

from collections.abc import Iterable

from kfext.model.job import TrainingJob
from kfext.model.kinds import PYTORCH
from kfext.model.pod import Pod

_TENSORFLOW_ORDER = ("chief", "master", "worker")
_PYTORCH_ORDER = ("master", "worker")


def printing_pods(job: TrainingJob, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of a job that may print its progress, the likeliest first.

    It is the first replica of the first type that trains: parameter servers and evaluators print
    nothing of it. Under torchrun with a rendezvous of its own any worker may be rank 0, so the
    others follow then. A replica's newest pod stands for it.
    """
    order = _PYTORCH_ORDER if job.kind is PYTORCH else _TENSORFLOW_ORDER
    newest: dict[tuple[int, int], Pod] = {}
    for pod in sorted(pods, key=lambda one: (one.created, one.uid)):
        if pod.node_name and pod.replica and pod.replica.type in order:
            newest[order.index(pod.replica.type), pod.replica.index] = pod
    ranked = [newest[key] for key in sorted(newest)]
    return ranked if job.dynamic_rendezvous else ranked[:1]
