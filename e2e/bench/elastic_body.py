"""The manifests of elastic jobs, as their users write them, and with an elasticPolicy of their own.

All pods have CPU requests = limits. The PyTorchJob needs no elasticPolicy under kfext, which writes
one; without kfext, whoever scales it needs one that its user wrote.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient

from e2e.harness.elastic_jobs import elastic_ddp, elastic_ps
from e2e.harness.jobs import specs

Object = dict[str, Any]
_RESTARTS = 100
"""Each worker that leaves costs torchrun one; as many as kfext writes."""


def torch_body(
    name: str, pods: int, *, cpu: str, folder: Path, sizes: str, arguments: Sequence[str]
) -> Object:
    """Return a PyTorchJob of `pods` pods that torchrun starts; `sizes`: how many it may have."""
    made = elastic_ddp(name, pods, cpu=cpu, folder=folder, sizes=sizes, arguments=arguments)
    return _plain(made)


def tf_body(
    name: str, workers: int, *, cpu: str, folder: Path, sizes: str, arguments: Sequence[str]
) -> Object:
    """Return a TFJob of a parameter server and dynamic workers."""
    made = elastic_ps(name, workers, cpu=cpu, folder=folder, sizes=sizes, arguments=arguments)
    return _plain(made)


def with_policy(body: Object, *, least: int, most: int, last_call: int | None = None) -> Object:
    """Return a PyTorchJob with an elasticPolicy, its Master among its Workers.

    `last_call`: the seconds that torchrun waits for more workers once the fewest are there, its own
    default of 30 s if None.
    """
    policy: Object = {
        "rdzvBackend": "c10d",
        "minReplicas": least,
        "maxReplicas": most,
        "maxRestarts": _RESTARTS,
    }
    if last_call is not None:
        policy["rdzvConf"] = [{"key": "last_call_timeout", "value": str(last_call)}]
    replicas = specs(body)
    worker = {**replicas["Master"], "replicas": sum(one["replicas"] for one in replicas.values())}
    spec = {**body["spec"], "elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": worker}}
    return {**body, "spec": spec}


def with_grace(body: Object, seconds: int) -> Object:
    """Return a job whose pods have so many seconds to end when they are deleted."""
    for spec in specs(body).values():
        spec["template"]["spec"]["terminationGracePeriodSeconds"] = seconds
    return body


def _plain(made: Any) -> Object:
    body: Object = ApiClient().sanitize_for_serialization(made)
    body["metadata"].setdefault("annotations", {})
    return body
