"""Jobs as objects: short manifests for tests, and readers of stored objects."""

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from e2e.testbed import trainer
from kfext import names
from kfext.model.kinds.registered import KINDS
from kfext.names import TRAINING_GROUP

Object = dict[str, Any]
PLURAL = {kind.name: kind.plural for kind in KINDS.values() if kind.group == TRAINING_GROUP}
"""The plural of each kind of the training-operator, which every testbed runs."""


TRAIN_JOB = "TrainJob"


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
    """Return a job.

    `replicas`: the number of replicas by type, such as {"Master": 1, "Worker": 3}. `each`: the
    requests and limits of each pod. `pod`: more fields of the pod spec. `policy`: the runPolicy.
    """
    resources = {"requests": dict(each or {}), "limits": dict(each or {})} if each else {}
    container = {"name": KINDS[kind].container, "image": "none", "resources": resources}
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
        "spec": {"runPolicy": dict(policy or {}), KINDS[kind].replica_specs: specs},
    }


def jobs_path(namespace: str, kind: str, name: str = "") -> str:
    """Return the API path of the jobs of a kind, or of the job with this name."""
    known = KINDS[kind]
    path = f"/apis/{known.api_version}/namespaces/{namespace}/{known.plural}"
    return f"{path}/{name}" if name else path


def specs(manifest: Object) -> Object:
    """Return the replica specs of a job of any kind."""
    replica_specs: Object = manifest["spec"][KINDS[manifest["kind"]].replica_specs]
    return replica_specs


def template(manifest: Object, type_: str = "Worker") -> Object:
    pod_template: Object = specs(manifest)[type_]["template"]
    return pod_template


def workers(name: str, count: int, **options: Any) -> Object:
    """Return a PyTorchJob with one master and `count` - 1 workers; see `job` for the options."""
    replicas = {"Master": 1, "Worker": count - 1} if count > 1 else {"Master": 1}
    return job(name, replicas, **options)


def train_job(
    name: str,
    count: int,
    *,
    resources: Object,
    annotations: Mapping[str, str] | None = None,
    pod: Mapping[str, Any] | None = None,
) -> Object:
    """Return a TrainJob of the torch runtime with `count` pods; `pod`: fields of the pod spec."""
    changes = {"name": "node", "template": {"spec": {"template": {"spec": dict(pod or {})}}}}
    patch = {
        "manager": "cases.kfext.dev/space",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [changes]}}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": TRAIN_JOB,
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "runtimeRef": {"name": trainer.RUNTIME},
            "trainer": {"numNodes": count, "resourcesPerNode": resources},
            "runtimePatches": [patch],
        },
    }


def size(job: Object) -> int:
    """Return the number of pods of a job of any kind."""
    if job["kind"] == TRAIN_JOB:
        return int(job["spec"]["trainer"]["numNodes"])
    return sum(int(group.get("replicas", 1) or 0) for group in specs(job).values())


def pod_label(kind: str) -> str:
    """Return the label on pods that names their job."""
    return "jobset.sigs.k8s.io/jobset-name" if kind == TRAIN_JOB else names.JOB_NAME


def suspended(job: Object) -> bool:
    """Return whether a stored job is suspended, by kfext or by its user."""
    *parents, last = KINDS[job["kind"]].suspend_path
    fields = job["spec"]
    for parent in parents:
        fields = fields.get(parent, {})
    return fields.get(last) is True


def held(job: Object) -> bool:
    """Return whether a stored job is marked as suspended by kfext."""
    return names.HELD in job["metadata"].get("annotations", {})


def marks_of(job: Object) -> dict[str, str]:
    written = job["metadata"].get("annotations", {})
    return {key: value for key, value in written.items() if key in names.WRITTEN_BY_KFEXT}


def gated(pod: Object) -> bool:
    """Return whether a pod has kfext's scheduling gate."""
    return {"name": names.GATE} in pod["spec"].get("schedulingGates", [])


def pinned_to(pod: Object) -> list[str]:
    """Return the node of each pin in a pod's required node affinity."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return [
        field["values"][0]
        for term in required.get("nodeSelectorTerms", [])
        for field in term.get("matchFields", [])
    ]


def conditions(job: Object) -> set[str]:
    """Return the types of a job's conditions with the status True."""
    stored = job.get("status", {}).get("conditions") or []
    return {condition["type"] for condition in stored if condition["status"] == "True"}


def ended(job: Object) -> str:
    """Return the outcome of a job, `Succeeded` or `Failed`; empty before its end."""
    outcome = next(iter(conditions(job) & {"Succeeded", "Complete", "Failed"}), "")
    return "Succeeded" if outcome == "Complete" else outcome


def describe_pod(pod: Object) -> str:
    """Return a line about a pod, for the message of a failed test."""
    conditions = pod["status"].get("conditions", [])
    why = [
        condition.get("message", "") for condition in conditions if condition["status"] == "False"
    ]
    return (
        f"pod {pod['metadata']['name']}: node {pod['spec'].get('nodeName', '-')}, "
        f"gates {[gate['name'] for gate in pod['spec'].get('schedulingGates', [])]}, "
        f"pins {pinned_to(pod)}, deleting {bool(pod['metadata'].get('deletionTimestamp'))} {why}"
    )


def describe_job(job: Object, *, view: Object, events: Iterable[Object]) -> Iterator[str]:
    """Yield lines about a job, for the message of a failed test."""
    metadata = job["metadata"]
    yield f"{job.get('kind', 'job')} {metadata['name']}: runPolicy {job['spec'].get('runPolicy')}"
    yield f"  annotations {json.dumps(metadata.get('annotations', {}))}"
    yield f"  conditions {sorted(conditions(job))}"
    yield f"  plan {json.dumps(view)[:600]}"
    yield from (f"  event {event.get('reason')}: {event.get('note')}" for event in events)


def on_host(pod: Object) -> bool:
    """Return whether a pod uses the network of its node."""
    return pod["spec"].get("hostNetwork") is True


def variables(pod: Object) -> dict[str, str]:
    """Return the environment of a pod's first container; a value from a reference is empty."""
    env = pod["spec"]["containers"][0].get("env", [])
    return {variable["name"]: variable.get("value", "") for variable in env}


def ports(pod: Object) -> list[int]:
    """Return the host ports of a pod's first container."""
    all_ports = pod["spec"]["containers"][0].get("ports", [])
    return [port["hostPort"] for port in all_ports if port.get("hostPort")]
