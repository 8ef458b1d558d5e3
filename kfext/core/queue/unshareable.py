"""Which jobs cannot share GPUs as they are.

Admission refuses such a job. One that becomes so by an edit stays in the queue: with a whole GPU it
must not run, as nobody accounts for that.
"""

from collections.abc import Iterator, Mapping

from kfext import names
from kfext.core.elastic import training_pods
from kfext.model.gpu_share import GpuShare
from kfext.model.job import TrainingJob
from kfext.model.kinds import TENSORFLOW


def why_unshareable(job: TrainingJob, shares: Mapping[str, GpuShare]) -> str:
    """Return why a job cannot have its parts of GPUs, empty if it can.

    `shares`: by type in lower case; types without replicas need none.
    """
    present = {group.type.lower() for group in job.groups if group.replicas}
    needed = {type_: share for type_, share in shares.items() if type_ in present}
    return next(_obstacles(job, needed), "")


def _obstacles(job: TrainingJob, shares: Mapping[str, GpuShare]) -> Iterator[str]:
    if shares and job.kueue_managed:
        yield (
            f"Kueue starts this job (label {names.KUEUE_QUEUE}), and kfext shares the GPUs of "
            f"jobs that it starts itself"
        )
    for group in job.groups:
        node = group.constraints.node_name
        if node and group.type.lower() in shares:
            # Its pods would pass the webhook and have whole GPUs, beside those reserved for them.
            yield (
                f"the {group.type} template names its node (nodeName: {node!r}); allowed: no "
                f"nodeName, as kfext chooses the node with the GPU; e.g. nodeSelector: "
                f'{{"kubernetes.io/hostname": "{node}"}}'
            )
    pods = training_pods(job)
    if any(not share.high for share in shares.values()) and (job.kind is TENSORFLOW or pods > 1):
        what = "a TFJob" if job.kind is TENSORFLOW else f"a job of {pods} pods"
        yield f"{what} cannot have low priority yet; set {names.GPU_PRIORITY} to high"
