"""Jobs of each kind that differ in how their size can be changed."""

from typing import Any

from kfext.model.job import TrainingJob
from tests.builders import JobBuilder, job


def torchrun(*, restart: str = "", **policy: Any) -> TrainingJob:
    """An elastic PyTorchJob; a field of its elasticPolicy that is None is unset."""
    written = {"minReplicas": 1, "maxReplicas": 8, "maxRestarts": 100, **policy}
    whole = {name: value for name, value in written.items() if value is not None}
    return _restarting(job().worker(4), restart).elastic(**whole).build()


def dynamic(*, restart: str = "OnFailure") -> TrainingJob:
    """A TFJob with workers that come and go, and a chief and a parameter server that never do."""
    made = _restarting(job("TFJob").group("Chief").ps(1).worker(4), restart)
    made.raw["spec"]["enableDynamicWorker"] = True
    return made.build()


def mirrored(*, restart: str = "OnFailure") -> TrainingJob:
    """A TFJob with workers that all know each other."""
    return _restarting(job("TFJob").worker(4), restart).build()


def fixed() -> TrainingJob:
    """A PyTorchJob without elasticPolicy."""
    return job().worker(4).build()


def led() -> TrainingJob:
    """A PyTorchJob with a Master that fixes the ranks, whatever its elasticPolicy says."""
    return job().master().worker(4).elastic(minReplicas=1, maxReplicas=8).build()


def _restarting(builder: JobBuilder, policy: str) -> JobBuilder:
    """Give the workers a restartPolicy, none if it is empty."""
    if policy:
        builder.raw["spec"][builder.build().kind.replica_specs]["Worker"]["restartPolicy"] = policy
    return builder
