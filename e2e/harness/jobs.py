"""Manifests of training jobs, as short as a test wants them."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

Object = dict[str, Any]
_CONTAINER = {"PyTorchJob": "pytorch", "TFJob": "tensorflow"}
_SPECS = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs"}
PLURAL = {"PyTorchJob": "pytorchjobs", "TFJob": "tfjobs"}


def job(
    name: str,
    replicas: Mapping[str, int],
    *,
    kind: str = "PyTorchJob",
    each: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    pod: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
) -> Object:
    """Return a job: `each` is what one pod requests (and is limited to), `pod` goes into its spec.

    `replicas` has the type as key, e.g. {"Master": 1, "Worker": 3}.
    """
    resources = {"requests": dict(each or {}), "limits": dict(each or {})} if each else {}
    container = {"name": _CONTAINER[kind], "image": "none", "resources": resources}
    template = {"spec": {"containers": [container], **(pod or {})}}
    specs = {
        type_: {"replicas": count, "restartPolicy": "OnFailure", "template": deepcopy(template)}
        for type_, count in replicas.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "annotations": dict(annotations or {}),
            "labels": dict(labels or {}),
        },
        "spec": {"runPolicy": dict(policy or {}), _SPECS[kind]: specs},
    }


def jobs_path(namespace: str, kind: str, name: str = "") -> str:
    """Return the path of jobs, or of one."""
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/{PLURAL[kind]}"
    return f"{path}/{name}" if name else path


def specs(manifest: Object) -> Object:
    """Return the replica specs of a job, whatever its kind."""
    found: Object = manifest["spec"][_SPECS[manifest["kind"]]]
    return found


def template(manifest: Object, type_: str = "Worker") -> Object:
    found: Object = specs(manifest)[type_]["template"]
    return found


def workers(name: str, count: int, **options: Any) -> Object:
    """Return a PyTorchJob of one master and `count` - 1 workers: `count` pods in all."""
    replicas = {"Master": 1, "Worker": count - 1} if count > 1 else {"Master": 1}
    return job(name, replicas, **options)
