"""How the replicas of a job find each other, as the spec of the job defines it."""

from collections.abc import Mapping
from typing import Any

from kfext.model.kinds.job_kind import PYTORCH, TENSORFLOW
from kfext.model.tolerant import mapping, text

DYNAMIC = frozenset({"c10d", "etcd-v2"})
"""The backends with which torchrun's agents use torch's own rendezvous."""


def meets_at_worker(spec: Mapping[str, Any], *, name: str) -> bool:
    """Return whether the workers of an elastic PyTorchJob meet at the first worker."""
    policy = mapping(spec.get("elasticPolicy"))
    host = text(policy.get("rdzvHost")).partition(".")[0]
    backend = text(policy.get("rdzvBackend"))
    return _has_policy(spec) and host in {"", f"{name}-worker-0"} and backend in {"", "c10d"}


def is_dynamic(spec: Mapping[str, Any]) -> bool:
    """Return whether torchrun's agents find each other by its own rendezvous (c10d, etcd-v2)."""
    backend = text(mapping(spec.get("elasticPolicy")).get("rdzvBackend"))
    return _has_policy(spec) and (backend or "c10d") in DYNAMIC  # c10d is the operator's default


def has_no_rendezvous(spec: Mapping[str, Any]) -> bool:
    """Return whether the operator gives the workers of a PyTorchJob no address to meet at."""
    meets = _has_master(spec) or _has_policy(spec)
    return PYTORCH.replica_specs in spec and not meets


def is_elastic(spec: Mapping[str, Any]) -> bool:
    """Return whether a job can run with fewer workers."""
    if _has_policy(spec):
        return not _has_master(spec)
    types = mapping(spec.get(TENSORFLOW.replica_specs))
    return spec.get("enableDynamicWorker") is True and any(
        str(type_).lower() == "ps" for type_ in types
    )


def _has_master(spec: Mapping[str, Any]) -> bool:
    return any(str(type_).lower() == "master" for type_ in mapping(spec.get(PYTORCH.replica_specs)))


def _has_policy(spec: Mapping[str, Any]) -> bool:
    return isinstance(spec.get("elasticPolicy"), Mapping)
