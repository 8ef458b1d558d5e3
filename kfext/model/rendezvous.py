"""How the replicas of a job find each other, from the spec of the job."""

from collections.abc import Mapping
from typing import Any

from kfext.model.kinds import PYTORCH, TENSORFLOW
from kfext.model.tolerant import mapping, text

_DYNAMIC = frozenset({"", "c10d", "etcd-v2"})  # the operator's default is c10d


def meets_at_worker(spec: Mapping[str, Any], *, name: str) -> bool:
    """Return whether the workers of an elastic PyTorchJob meet at the first of them."""
    policy = mapping(spec.get("elasticPolicy"))
    host = text(policy.get("rdzvHost")).partition(".")[0]
    at_worker = host in {"", f"{name}-worker-0"}
    return "elasticPolicy" in spec and at_worker and text(policy.get("rdzvBackend")) in {"", "c10d"}


def is_dynamic(spec: Mapping[str, Any]) -> bool:
    """Return whether agents of torchrun find each other by its own rendezvous (c10d, etcd-v2)."""
    policy = mapping(spec.get("elasticPolicy"))
    return "elasticPolicy" in spec and text(policy.get("rdzvBackend")) in _DYNAMIC


def told_nowhere(spec: Mapping[str, Any]) -> bool:
    """Return whether the operator tells the workers of a PyTorchJob nothing of each other."""
    told = _has_master(spec) or isinstance(spec.get("elasticPolicy"), Mapping)
    return PYTORCH.replica_specs in spec and not told


def is_elastic(spec: Mapping[str, Any]) -> bool:
    """Return whether a job runs with fewer workers too."""
    if isinstance(spec.get("elasticPolicy"), Mapping):
        return not _has_master(spec)
    types = mapping(spec.get(TENSORFLOW.replica_specs))
    return spec.get("enableDynamicWorker") is True and any(
        str(type_).lower() == "ps" for type_ in types
    )


def _has_master(spec: Mapping[str, Any]) -> bool:
    return any(str(type_).lower() == "master" for type_ in mapping(spec.get(PYTORCH.replica_specs)))
