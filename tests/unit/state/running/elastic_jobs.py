"""Jobs that differ in how their number of workers can be changed."""

from typing import Any

from kfext.model.job import TrainingJob
from tests.builders import JobBuilder, job


def torchrun(*, restart: str = "", **policy: Any) -> TrainingJob:
    """Return an elastic PyTorchJob; fields of its elasticPolicy with the value None are unset."""
    fields = {"minReplicas": 1, "maxReplicas": 8, "maxRestarts": 100, **policy}
    present = {name: value for name, value in fields.items() if value is not None}
    return _with_restart_policy(job().worker(4), restart).elastic(**present).build()


def dynamic(*, restart: str = "OnFailure") -> TrainingJob:
    """Return a TFJob with dynamic workers, a chief and a parameter server."""
    builder = _with_restart_policy(job("TFJob").group("Chief").ps(1).worker(4), restart)
    builder.raw["spec"]["enableDynamicWorker"] = True
    return builder.build()


def mirrored(*, restart: str = "OnFailure") -> TrainingJob:
    """Return a TFJob with workers that all know each other, so a change restarts them all."""
    return _with_restart_policy(job("TFJob").worker(4), restart).build()


def fixed() -> TrainingJob:
    """Return a PyTorchJob without elasticPolicy."""
    return job().worker(4).build()


def led() -> TrainingJob:
    """Return a PyTorchJob with a Master, so its ranks are fixed in spite of its elasticPolicy."""
    return job().master().worker(4).elastic(minReplicas=1, maxReplicas=8).build()


def _with_restart_policy(builder: JobBuilder, policy: str) -> JobBuilder:
    """Give the workers a restartPolicy, or none if it is empty."""
    if policy:
        builder.raw["spec"][builder.build().kind.replica_specs]["Worker"]["restartPolicy"] = policy
    return builder
