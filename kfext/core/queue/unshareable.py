"""Which jobs cannot share GPUs as they are.

Admission refuses such a job. One that becomes so by an edit stays in the queue: with a whole GPU it
must not run, as nobody accounts for that.
"""

from collections.abc import Iterator

from kfext import names
from kfext.core.elastic import training_pods
from kfext.core.settings.gpu_shares import share_of
from kfext.core.settings.gpu_values import TYPES
from kfext.core.settings.resolve import Settings
from kfext.core.words import listed
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
    present = {group.type.lower(): group for group in job.groups if group.replicas}
    shares = {type_: share_of(settings.gpu, type_) for type_ in present}
    sharing = False
    for type_, group in present.items():
        if shares[type_] is None or not (_gpus(group) or _has_own(type_, settings)):
            continue  # its GPUs are its own, or it has none
        sharing = True
        yield from (f"the {group.type} template {why}" for why in _of_template(group))
    missing = [one for one in TYPES if one not in present and _has_own(one, settings)]
    if missing or not sharing:
        what = f"no replicas of type {listed(missing, of='types')}" if missing else "no GPUs"
        yield f"the job has {what}; each replica that shares a GPU asks for {NATIVE_GPU}: 1"
    pods = training_pods(job)
    low = any(share and not share.high and _gpus(present[one]) for one, share in shares.items())
    if low and not (job.kind.yields_gpu and pods == 1):
        what = f"a job of {pods} pods" if job.kind.yields_gpu else f"{job.kind.name}s"
        yield f"{what} cannot have low priority yet; set {names.GPU_PRIORITY} to high"


def _of_template(group: ReplicaGroup) -> Iterator[str]:
    if not _gpus(group):
        yield f"asks for {NATIVE_GPU}: 0, but a replica can have a part of 1 only"
    if group.no_part:
        yield group.no_part
    if node := group.constraints.node_name:
        # Its pods would pass the webhook and have whole GPUs, beside those reserved for them.
        yield (
            f"names its node (nodeName: {node!r}); allowed: no nodeName, as kfext chooses the node "
            f'with the GPU; e.g. nodeSelector: {{"kubernetes.io/hostname": "{node}"}}'
        )


def _gpus(group: ReplicaGroup) -> bool:
    """Return whether the pods ask for a GPU, also where a part of one counts instead of it."""
    return group.share is not None or NATIVE_GPU in group.requests


def _has_own(type_: str, settings: Settings) -> bool:
    """Return whether a share is set for one type alone."""
    return f"{names.GPU_SHARE}.{type_}" in settings.gpu
