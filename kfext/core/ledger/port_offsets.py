"""The offset of a replica: which of the job's ports it has, counted from the base.

It does not depend on the number of workers, so that a job may grow. PyTorch's own connections use
ephemeral ports and need none.
"""

from collections.abc import Iterable, Mapping

from kfext.model.job import TrainingJob
from kfext.model.kinds.job_kind import TENSORFLOW
from kfext.model.pod import ReplicaKey

_ONE_OF_A_KIND = {"chief": 0, "master": 1, "evaluator": 2}


def offset_of(type_: str, index: int, *, servers: int) -> int | None:
    """Return the offset of a TFJob's replica, None for one to which no other connects.

    `type_` is in lower case; `servers` is how many parameter servers the job has.
    """
    if type_ in _ONE_OF_A_KIND:
        return None if index else _ONE_OF_A_KIND[type_]
    first = len(_ONE_OF_A_KIND) + (servers if type_ == "worker" else 0)
    return first + index if type_ in {"ps", "worker"} else None


def offsets(job: TrainingJob, keys: Iterable[ReplicaKey] | None = None) -> Mapping[ReplicaKey, int]:
    """Return the offset of each replica that declares a port on the host network.

    `keys` are the only ones that are asked for; without them all are, of a job within its bounds.
    """
    sizes = {group.type.lower(): group.replicas for group in job.groups}
    if keys is None:
        keys = (key for key, _ in job.replicas())
    wanted = (key for key in keys if key.index < sizes.get(key.type, 0))
    if job.kind is TENSORFLOW:
        if job.pods == 1:
            return {}  # the operator writes no cluster for a single replica
        found = {key: offset_of(key.type, key.index, servers=sizes.get("ps", 0)) for key in wanted}
        return {key: offset for key, offset in found.items() if offset is not None}
    if job.dynamic_rendezvous:
        # The first listens. All declare its port, so that kube-scheduler keeps them apart.
        return {key: 0 for key in wanted if key.type == "worker"}
    return {ReplicaKey("master", 0): 0} if sizes.get("master") else {}
