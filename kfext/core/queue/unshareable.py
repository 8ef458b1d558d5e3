"""Which jobs cannot share GPUs as they are.

Admission refuses such a job. One that becomes so by an edit stays in the queue: with a whole GPU it
must not run, as nobody accounts for that.
"""

from collections.abc import Iterator

from kfext import names
from kfext.core.elastic import training_pods
from kfext.core.settings.table import Settings
from kfext.core.settings.values import HIGH
from kfext.model.job import TrainingJob
from kfext.model.replica_group import ReplicaGroup
from kfext.names import NATIVE_GPU


def why_unshareable(job: TrainingJob, settings: Settings) -> str:
    """Return why a job cannot have its parts of GPUs, empty if it can or asks for none."""
    if job.released or not settings.shares_gpus:
        return ""
    return next(_obstacles(job, settings), "")


def _obstacles(job: TrainingJob, settings: Settings) -> Iterator[str]:
    if job.kueue_managed:
        yield (
            f"Kueue starts this job (label {names.KUEUE_QUEUE}), and kfext shares the GPUs of "
            f"jobs that it starts itself"
        )
    if settings.elastic is not None:
        yield f"the number of its replicas may change ({names.ELASTIC}); set it to off"
    asking = [group for group in job.groups if group.replicas and _gpus(group)]
    sharing = [group for group in asking if _gpus(group) == 1]
    if not asking:
        yield f"the job has no GPUs; each replica that shares a GPU asks for {NATIVE_GPU}: 1"
    for group in sharing or asking:
        yield from (f"the {group.type} template {why}" for why in _of_template(group))
    pods = training_pods(job)
    if settings.gpu_priority != HIGH and not (job.kind.yields_gpu and pods == 1):
        what = f"a job of {pods} pods" if job.kind.yields_gpu else f"a {job.kind.name}"
        yield f"{what} cannot have low priority yet; set {names.GPU_PRIORITY} to high"


def _of_template(group: ReplicaGroup) -> Iterator[str]:
    if group.no_part:
        yield group.no_part
    if node := group.constraints.node_name:
        # Its pods would pass the webhook and have whole GPUs, beside those reserved for them.
        yield (
            f"names its node (nodeName: {node!r}); allowed: no nodeName, as kfext chooses the node "
            f'with the GPU; e.g. nodeSelector: {{"kubernetes.io/hostname": "{node}"}}'
        )


def _gpus(group: ReplicaGroup) -> int:
    """Return how many GPUs a pod asks for, also where a part of one counts instead of it."""
    return 1 if group.share is not None else group.requests.get(NATIVE_GPU, 0)
